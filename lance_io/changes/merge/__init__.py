"""MERGES: rows of a source meet rows of the table by key (`merge_insert`).

merge_builder    what users call: clauses, then `execute`
merge_clauses    what is done with which rows, as one checked value
source_fit       the columns of a source against those of the table
match_keys       which rows have one key: one side in a table of keys, the other one goes by
match_rows       what that means for the clauses: rows to update, insert, delete
written_rows     whole rows, written anew
patched_columns  columns, written anew for the fragments whose rows were met
inserted_keys    which keys were inserted, so that two writers of one are noticed
merge_plan       all of it as one plan, made anew after a conflict
merge_text       the plan as text

Rows of the source wait, and keys are compared, as in `join/`.
"""
