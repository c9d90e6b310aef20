"""BLOB COLUMNS: descriptions in data files, bytes somewhere else.

blob_values                   where the bytes of a description are, and their reading
blob_file, async_blob_file    a blob as a file
blob_column                   a column of them
"""
