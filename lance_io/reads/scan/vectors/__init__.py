"""Vector searches by an index.

vector_choice   which index answers a search, and its segments
index_search    the part of a search that an index answers
settled         what searches of one column have in common, kept with the version
shared_turns    searches of several callers at once, answered together
"""
