"""BLOB COLUMNS: descriptions in data files, bytes somewhere else.

blob_values   where the bytes of a description are, and their reading
blob_file     a blob as a file, plain and awaitable; blobs of given rows
blob_column   a column of them
"""
