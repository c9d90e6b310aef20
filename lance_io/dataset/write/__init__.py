"""CHANGES: what turns data and wishes into new table versions.

entry, commits         the functions that users call; keywords: what they may say
methods                the methods of datasets that change the table
input, fit             any form of data as record batches; against the schema of the table that it joins
datafiles              record batches to data files, one fragment each
rows, fragments        create, append, overwrite; files without a commit
changes, deleting      changes of an open table
committing, operations, convert   operations that somebody else prepared
tagging, cleaning, history, dropping
"""
