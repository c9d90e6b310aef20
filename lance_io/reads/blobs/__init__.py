"""BLOB COLUMNS: descriptions in data files, bytes elsewhere.

blob_values    the location of a blob's bytes, and reading them
managed_blobs  blobs that a table manages, and the versions that refer to them
blob_column    binary values as files
"""
