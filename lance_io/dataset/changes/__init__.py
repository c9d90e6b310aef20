"""CHANGES of an open table that write no rows: deletions, tags, commits of prepared operations, removal.

change_methods                     the methods of datasets that change the table
change_plans, commit_operation     each change as a plan
delete_rows, change_tags, remove_versions, drop_table   what they do
lance_operation, convert, transaction_history   operations as values of users
"""
