"""Vectors: how they lie in memory, how far apart they are, and which of them are nearest.

vector_arrays  an Arrow array of vectors -> a matrix
distances      the distances that are given, and bounds of them by a matrix product
nearest_rows   the k nearest rows of all that were shown
flat_search    batches of vectors -> the rows nearest to some queries
"""
