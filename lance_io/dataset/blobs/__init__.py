"""BLOB COLUMNS: descriptions in data files, bytes somewhere else.

blob_values    where the bytes of a description are, and their reading
blob_file      a blob as a file, plain and awaitable; blobs of given rows
managed_blobs  which of the payloads that a table manages its versions refer to
blob_column    a column of them
"""
