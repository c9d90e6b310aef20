"""CHANGES of a table, and the version that comes of them.

transaction, operations, operation_messages   what a commit changes, as values and as messages
conflicts, continuity, rebase   do two changes go together, and one brought onto the other
apply, draft                    the next version: its fragments, its manifest
index_coverage, lineage, field_ids   what becomes of indices, row ids, field ids and declared keys
garbage, auto_cleanup           what a cleanup may remove, and when one follows a commit
"""
