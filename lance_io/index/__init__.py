"""Finds rows without reading all of their columns. Pure: no store, no event loop.

details    kinds and versions of indices, from the index section
questions  to an index, and the protocol of segments
scalar/    scalar indices: how a segment is opened, and how it answers
rows/      sets of rows, and their form in index files
build/     the files of new scalar indices
vector/    distances between vectors, and the rows nearest to a query
"""
