"""Generated protobuf classes, checked in. Sources: `protos/`; regenerate with `python scripts/generate_protos.py`.

encodings21  page layouts and compression trees of file versions 2.1 and 2.2
encodings    column encodings
file         schema and column metadata of a data file
table        manifest, fragments, index section
index        tensors and partitions of vector indices
rowids       stable row id and row version sequences

Only the pure rooms `format`, `encodings`, `codecs` and `table` import these; everything above sees frozen dataclasses.
"""
