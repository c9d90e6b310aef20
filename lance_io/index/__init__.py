"""Finds rows without reading all of their columns. Pure: no store, no event loop.

vector/  distances between vectors, and the rows nearest to a query
"""
