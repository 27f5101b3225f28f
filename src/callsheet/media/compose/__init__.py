"""A narrated video from a script in Markdown: script → voice → visuals → timeline → MP4. Knows nothing of jobs.

`stages.compose` is the whole task. The parts can be used alone: `markdown.parse`, `voice.speak`, `visuals.draw`,
`render.plan` and `render.render`. Everything that opens a picture or loads the voice runs in a child, in the box.
"""
