"""PUBLIC METADATA: descriptions of a version in the classes that pylance has.

describe, lance_schema, debug_text        versions, schemas, and their texts
fragment_metadata, row_id_sequence        fragments, data files, row ids
described_file                            the manifest entry of another writer's data file
file_listing, table_statistics            files and sizes
index_descriptions                        the indices of a version
"""
