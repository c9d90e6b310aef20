"""Full-text search: queries, and the files of INVERTED indices (spec: indices, 7).

tokenizer        texts -> tokens, by the parameters of an index
text_parameters  these parameters: arguments, details messages, metadata of files
"""
