"""CHANGES of an open table: deletions, updates, columns, tags, commits of prepared operations, removal.

change_methods, metadata_methods   the methods of datasets that change the table; of these, those of metadata
change_plans, commit_operation     each change as a plan
delete_rows, change_tags, remove_versions, drop_table   what they do
update_rows, rewrite_rows, blob_payloads   rows that are written anew
memory_limit                       how much memory a change may use
lance_operation, convert, transaction_history   operations as values of users
"""
