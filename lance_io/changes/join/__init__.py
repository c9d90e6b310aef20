"""JOINS of a caller's rows with rows of the table by key, in memory or on local disk.

source_rows      rows of a source, pulled once, in memory or on local disk
row_keys         keys of rows as numbers
keyed_rows       rows with such keys
placed_rows      rows by their position in the table
spill_file       bytes on local disk
spilled_batches  record batches on local disk
"""
