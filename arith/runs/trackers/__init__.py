"""Where metrics go besides metrics.jsonl: one file a tracker, whose name it is after --track.

A file says which package it `NEEDS` and has `opened(folder, record, step)`, which gives a Sink.
"""
