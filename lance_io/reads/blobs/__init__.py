"""BLOB COLUMNS: descriptions in data files, bytes elsewhere.

blob_values    the place of a description's bytes, and their reading
managed_blobs  payloads that a table manages, and the versions that refer to them
blob_column    a column of blobs
"""
