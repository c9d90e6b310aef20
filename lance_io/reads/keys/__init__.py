"""Look-up of rows by keys, which are values of an indexed column.

Rows are returned in the order of the keys in the argument. A scan finds the rows of fragments that the index does not
cover.
"""
