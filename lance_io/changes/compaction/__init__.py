"""Compaction: the live rows in fewer, larger fragments (spec: table, 2.8; commit, 10).

lineage_files        ids and versions of rows in separate files
compaction_options   options, with defaults from the table's configuration
plan_tasks           grouping of fragments: candidates, bins, limits. Pure
compaction_values    plans, tasks and results as values that can be sent to other processes
recorded_segments    indices that may need the record of earlier compactions
rewrite_fragments    one task: rows of some fragments into new ones
copy_pages, copy_blobs   the same by copying encoded pages; bytes of blobs
verify_rows          comparison of old and new rows
explain_compaction   effects and cost of a compaction
compact_files        plan, execute, commit as plans
"""
