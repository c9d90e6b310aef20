"""Compaction: the same rows in fewer, larger fragments, without those that are deleted (spec: table, 2.8; commit, 10).

lineage_files        ids and versions of rows in files of their own
compaction_options   what may be asked for; defaults from the table's configuration
plan_tasks           which fragments go together: candidates, bins, limits. Pure
compaction_values    plans, tasks and results as values that travel between processes
recorded_segments    which indices may need the record of earlier compactions
rewrite_fragments    one task: rows of some fragments into new ones
compact_files        plan, execute, commit as plans
optimizer            what `dataset.optimize` is, and `Compaction`
"""
