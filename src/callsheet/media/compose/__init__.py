"""A narrated video from a script in Markdown: script → voice → visuals → timeline → MP4. Knows nothing of jobs."""
