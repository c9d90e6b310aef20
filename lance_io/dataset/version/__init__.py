"""AN OPEN VERSION of a table: from a URI to what its manifest says, and what versions share.

open_version, versions, tags_and_branches, timestamps   which version is meant
state, session, object_keys                             an open one, what datasets share, where its objects are
column_lists, system_columns                            column lists in its schema
describe, fragment_metadata, lance_schema               what it says, in the values that pylance hands out
table_statistics, file_listing, validation              what can be asked about its files
described_file                                          what a manifest would say of a file that others wrote
"""
