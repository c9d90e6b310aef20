"""Searches of a table.

vector_query    the keywords of `nearest`, and what they mean for a table's schema
search_columns  the columns of what is found
nearest         the rows nearest to a query: what is scanned, searched and taken
"""
