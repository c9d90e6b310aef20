"""Scalar indices, one module for each kind: how a segment is made of its files, and how it answers a question.

key_order, files  values in the order of indices; checks of index files
btree            sorted values in pages
bitmap           the rows of each value, or of each label of lists
zone_maps, bloom  bounds, or Bloom filters, of runs of rows
ngram            the rows of each trigram of a text
kinds            which module reads which kind
"""
