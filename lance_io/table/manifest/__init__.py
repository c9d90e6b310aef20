"""A VERSION of a table, and the metadata files that describe it.

manifest, manifest_file   one version of a table, from its file and to it
partial_manifest          a version with some of its fragments
fragment                  its fragments, their data files and deletion files (stored_fragments: not yet parsed)
flags                     the feature flags that we can read
paths                     paths of files, and the check that they stay in their folders
deletion_file             deleted rows of a fragment (in the containers of arrow_ipc and roaring)
row_ids                   stable row ids, row versions, and the index from row id to address
refs                      tags and branches
index_section             the entries of the index section (fragment_reuse: the record of moved rows)
"""
