"""THE STATE OF A VERSION: its manifest, and data that calls on it share.

state, session, object_keys             the open version, the caches and stores that datasets share, its objects' keys
versions, timestamps, row_counts        listings of versions, times, live rows of fragments
manifest_reads                          manifests of many versions at once
column_lists, system_columns            column lists against the schema, and the columns that no file holds
blob_fields                             schemas whose blobs are read as bytes
index_entries, index_errors             entries of the index section, and errors about index files
"""
