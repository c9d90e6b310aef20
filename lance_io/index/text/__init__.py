"""Full-text search: queries, and the files of INVERTED indices (spec: indices, 7).

tokenizer        texts -> tokens, by the parameters of an index
text_parameters  these parameters: arguments, details messages, metadata of files
text_builder     texts -> partitions of files
text_files       these files: their columns, and metadata

full_text_query  the classes of queries that users build
word_search      a query's words, as a column is asked for them
text_partition   a partition's tokens, documents and posting lists, from its files
listed_tokens    tokens in rows, and those that are similar to a word
scoring          statistics, and the weight of a token in a document
text_matches     rows and scores, and how queries combine those of others
text_paths       members of structs and of lists that hold texts
"""
