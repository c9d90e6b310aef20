"""MERGES: rows of a source meet rows of the table by key (`merge_insert`).

merge_builder    the public builder: clauses, then `execute`
merge_clauses    the clauses of a merge, as one checked value
source_fit       maps columns of the source to those of the table
match_keys       hash join of source and target by key
match_rows       applies the clauses to matches: rows to update, insert, delete
written_rows     writes whole rows
patched_columns  writes columns for the fragments that have matches
inserted_keys    Bloom filter of the inserted keys, to detect concurrent inserts of a key
merge_plan       the whole merge as one plan, retried after conflicts
merge_text       the plan as text

`join/` holds the rows of the source and the keys.
"""
