"""JOINS: rows of a caller meet rows of the table by key, in memory or on local disk.

source_rows      the rows of a source, pulled once, in memory or on local disk
row_keys         keys of rows as numbers
keyed_rows       rows with these
placed_rows      rows by where they belong in the table
spilled_batches  record batches on local disk
"""
