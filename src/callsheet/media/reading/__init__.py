"""Combine raw text detections into readings. Pure text work: no files, no clock, no database.

`merge.merge` turns detections of single frames into time ranges, `entities.entities` finds mentions, links and the
like in a text, `exports` writes ranges as WebVTT, SRT, CSV and JSON.
"""
