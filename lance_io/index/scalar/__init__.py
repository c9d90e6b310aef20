"""Scalar indices, one module for each kind: how a segment is made of its files, and how it answers a question.

keys, files      values in the order of indices; checks of index files
btree            sorted values in pages
kinds            which module reads which kind
"""
