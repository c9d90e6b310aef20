"""A VERSION of a table, and the files that say what is in it.

manifest, manifest_file   one version of a table, from its file and to it
fragment                  its fragments, their data files and deletion files
flags                     which feature flags we may read past
paths                     where the files are, and which paths are refused
deletion_file             deleted rows of a fragment (with arrow_ipc and roaring, the two containers they come in)
row_ids                   stable row ids, row versions, and the index from row id to address
refs                      tags and branches
index_section             the entries of the index section
"""
