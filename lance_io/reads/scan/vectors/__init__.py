"""Vector searches by an index.

vector_choice   which index answers a search, and its segments
index_search    the part of a search that an index answers
"""
