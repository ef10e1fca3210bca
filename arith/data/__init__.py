"""Problems as an indexed stream, on disk and in batches. Never imports torch.

bucket.py         the stream: problem i is a pure function of task, seed, split and i
write_dataset.py  write a dataset in several processes, resumed after a kill
dataset.py        read and verify a dataset; manifest.py describes it
rows.py           padded or packed rows of a batch
formats.py        problems as text and Parquet
"""
