"""EDITS of rows: deletions, updates, and commits of prepared operations.

change_plans, commit_operation, committed_files   each change as a plan; checks of prepared operations
delete_rows, update_rows                          deletes and updates by a condition
rewrite_rows, blob_payloads, row_progress         moving rows into new fragments
"""
