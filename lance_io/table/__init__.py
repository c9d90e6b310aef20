"""METADATA, PURE: what a version of a table is made of, from bytes to frozen values.

Whoever calls these functions has fetched the bytes; nothing here does I/O. May import `format` and below.

manifest   one version of a table
fragment   its fragments, their data files and deletion files
flags      which feature flags we may read past
paths      where the files are, and which paths are refused
deletion   deleted rows of a fragment (with ipc and roaring, the two containers they come in)
rowids     stable row ids, row versions, and the index from row id to address
refs       tags and branches
indices    the entries of the index section

transaction, operations, operation_messages   what a commit changes, as values and as messages
conflicts, rebase   do two changes go together, and one brought onto the other
apply, draft, coverage, lineage   the next version: its fragments, what indices cover, row ids and row versions
manifest_write      its file
garbage, autoclean  what a cleanup may remove, and when one follows a commit
"""
