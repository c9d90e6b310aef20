"""INDICES OF A VERSION: which of them answers a filter or a vector search, and with which rows.

table_indices   the indices that answer filters, by column, and the fragments that they cover
choose_indices  a filter's bound tree -> conditions on indexed columns, and the rest
json_targets    values inside JSON documents as targets of conditions
index_files     keys and buffers of the files of segments
segments        opens segments: their lookups and keys, kept in memory
indexed_rows    conditions -> row addresses, of covered fragments only
index_counts    what a scan read of indices
describe_choice the conditions as text
extremes        the least and the greatest value of a column

vector_indices  the indices of vectors
partitions      opens their segments, reads partitions; both are kept in memory
row_filter      the rows of an index that count: live, covered, allowed by a filter
neighbours      partitions in one round -> the nearest rows
exact_rows      chosen rows -> their exact distances

Scans, key look-ups and vector searches use them in `reads/scan/`.
"""
