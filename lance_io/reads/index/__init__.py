"""INDICES OF A VERSION: which of them answers a filter, and with which rows.

table_indices   the indices that this release reads, by column, and the fragments that they cover
choose          a filter's bound tree -> conditions on indexed columns, and the rest
segments        opens segments: their lookups and keys, kept in memory
execute         conditions -> row addresses, of covered fragments only

Scans and key look-ups use them in `reads/scan/`.
"""
