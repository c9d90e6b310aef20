"""Full-text search: queries, and the files of INVERTED indices (spec: indices, 7).

full_text_query  the classes of queries that users build
text_partition   a partition's tokens, documents and posting lists, from its files
similar_words    a query's words -> the tokens of partitions, exact or similar
scoring          statistics, and the score of a document by the tokens that it has
text_matches     rows and scores: of one query, and combined by the operators of others
"""
