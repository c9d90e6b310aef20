"""Finds rows without reading all of their columns. Pure: no store, no event loop.

build/   the files of new scalar indices
vector/  distances between vectors, and the rows nearest to a query
"""
