"""Problems as an indexed stream, on disk and in batches.

bucket.py         the stream: problem i is a pure function of task, seed, split and i
dataset.py        a dataset on disk: its manifest, reading and verifying it
write_dataset.py  write one in several threads, resumed after a kill; text and Parquet
rows.py           padded or packed rows of a batch
"""
