"""METADATA FOR USERS: what a version says of itself, in the classes that pylance hands out.

describe, lance_schema, debug_text        versions, schemas, and their texts
fragment_metadata, row_id_sequence        fragments, data files, row ids
described_file                            the manifest entry of a data file that another writer made
file_listing, table_statistics            files and sizes
index_descriptions                        the indices of a version
"""
