"""Reading: what raw detections of text say together. Pure text work: no files, no clock, no database.

`merge.merge` turns detections of single frames into time ranges, `entities.entities` finds what can be looked for in a
text, `language.tag` names its language, `exports` writes ranges as WebVTT, SRT, CSV and JSON.
"""
