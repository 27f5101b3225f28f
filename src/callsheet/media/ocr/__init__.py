"""Text in pictures: bytes of a frame → words → lines of text. Knows nothing of jobs, videos or storage.

    async with read_frames(keys, load, Reading(languages=("eng",)), start=ctx.children.start) as batches:
        async for batch in batches:                      # Batch(first, keys, texts), in the order of `keys`
            for key, text in zip(batch.keys, batch.texts, strict=True):
                text.regions                             # lines: text, box, confidence 0..1, language, words

`load` is `async (key) -> bytes`; it runs some frames ahead of the engine. While the caller writes one batch, the
engine reads the next. `engines.check(options)` raises errors in options before any work; `records` holds inputs and
outputs, `errors` the errors. The engine itself runs in sandboxed children (`pool`, `child`), one per core. This file
imports nothing: the optional packages load only where they are used.
"""
