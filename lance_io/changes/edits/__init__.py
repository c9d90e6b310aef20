"""EDITS of rows: deletions, updates, and commits of prepared operations.

change_plans, commit_operation, committed_files   each change as a plan
delete_rows, update_rows                          rows that a condition selects
rewrite_rows, blob_payloads, row_progress         rows that are written again
"""
