"""Make a narrated video from a script in Markdown: script → voice → visuals → timeline → MP4. Knows nothing of jobs.

`stages.compose` is the whole task. Its parts work alone, too: `markdown.parse`, `voice.speak`, `visuals.draw`,
`render.plan` and `render.render`. Code that opens a picture or loads the voice runs in a sandboxed child.
"""
