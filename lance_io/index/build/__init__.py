"""Building scalar indices: streams of (values, rows) in, batches of the index files out. Pure.

row_sorter.py        external merge sort of (value, row); sort_keys.py: the order of values (spec: indices, 2.1)
index_file.py        the file that a builder describes, and the protocol of builders
btree_files.py       BTREE
bitmap_files.py      BITMAP, and the same file of LABEL_LIST and NGRAM; map_bytes.py: their bitmaps, many at a time
zone_files.py        ZONEMAP and BLOOMFILTER; bloom_blocks.py: the filters
label_items.py       lists to items; trigrams.py: texts to trigrams
"""
