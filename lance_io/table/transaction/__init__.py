"""CHANGES of a table, and the versions they create.

transaction, operations, operation_messages   the changes of a commit, as values and as messages
conflicts, continuity, rebase   whether two changes are compatible, and moving one onto the other
apply, draft                    the next version: its fragments, its manifest
index_coverage, lineage, field_ids   updates of indices, row ids, field ids and declared keys
garbage, auto_cleanup           which files a cleanup may remove, and when a commit starts one
"""
