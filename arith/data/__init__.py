"""Problems as an indexed stream, on disk and in batches.

bucket.py         the stream: problem i is a pure function of task, seed, split and i
dataset.py        read and verify a dataset on disk; its manifest
write_dataset.py  write a dataset, text or Parquet in several threads, whole or not at all
rows.py           padded or packed rows of a batch
"""
