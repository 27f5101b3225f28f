"""Text in pictures: bytes of a frame → words → lines of text. Knows nothing of jobs, videos or storage.

    async with read_frames(keys, load, Reading(languages=("eng",)), start=ctx.children.start) as batches:
        async for batch in batches:                      # Batch(first, keys, texts), in the order of `keys`
            for key, text in zip(batch.keys, batch.texts, strict=True):
                text.regions                             # lines: text, box, confidence 0..1, language, words

`load` is `async (key) -> bytes`; it is called some frames ahead of the engine. While the caller writes one batch, the
next is read already. `engines.check(options)` raises what is wrong with options before anything starts; `records`
holds what goes in and out, `errors` what can go wrong. The engine itself runs in children inside the box (`pool`,
`child`), one per core. Nothing is imported here: the extra packages are needed only where they are used.
"""
