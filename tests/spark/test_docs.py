"""What `docs/spark.md` says: its tables are those of the code, and each claim has a test.

`CLAIMS` leads from words of the page to the test of what they say. Whoever changes a claim changes its test, or this.
"""

from __future__ import annotations

import ast
import re
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path

from lance_io.limits import IO_BUFFER_BYTES
from lance_io.spark import options

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "spark.md"

CLAIMS = {
    # SQL
    "`configure` adds the JAR": "test_jar_cluster.test_sql_on_executors",
    "adds it to one that runs": "test_jar_reading.test_a_running_session_is_enabled",
    "Both may be called again": "test_jar_reading.test_a_running_session_is_enabled",
    "for all threads of the program": "test_jar_reading.test_a_running_session_is_enabled",
    "spark.sql.catalog.lance.path": "test_jar_reading.test_a_catalog_has_a_folder",
    "The table `lance.t` is the folder": "test_jar_reading.test_tables_are_listed_and_described",
    "is a table elsewhere": "test_jar_reading.test_tables_by_path",
    "a version by number, tag or branch": "test_jar_reading.test_versions_by_number_tag_branch_and_time",
    "the oldest and the newest version kept": "test_jar_reading.test_versions_by_number_tag_branch_and_time",
    "`enable` keeps credentials out of these": "test_jar_cluster.test_credentials_of_the_catalog_do_not_show",
    "tables about the table": "test_jar_reading.test_tables_about_a_table",
    "Namespaces are folders in it, at any depth": "test_jar_namespaces.test_tables_in_namespaces",
    "`CASCADE` removes tables and namespaces": "test_jar_namespaces.test_namespaces_have_properties_and_go",
    "in a namespace `t` goes first": "test_jar_namespaces.test_tables_in_namespaces",
    # statements that change tables
    "`writeTo`, `saveAsTable`": "test_jar_writing.test_data_frames_write",
    "each statement is one version": "test_jar_writing.test_the_cookbook_of_the_page",
    "is there at the end or never": "test_jar_writing.test_queries_make_tables_whole_or_not_at_all",
    "A replaced table is a new one": "test_jar_writing.test_queries_make_tables_whole_or_not_at_all",
    "of writes to a path only": "test_jar_merging.test_merge_schema_never_leaves_a_column_out",
    "also into another namespace": "test_jar_namespaces.test_tables_move_between_namespaces",
    "of texts, numbers, booleans, bytes": "test_dynamic_keys.test_columns_with_parts_are_refused",
    "the new ones enter in one version": "test_jar_writing.test_inserts",
    "A null replaces nulls": "test_jar_writing.test_inserts",
    "writes deletion files only": "test_jar_writing.test_changes_equal_those_of_pylance",
    "updated rows keep theirs": "test_jar_writing.test_changes_equal_those_of_pylance",
    "also members of structs": "test_jar_writing.test_alter_table",
    "fixed when the table is created": "test_jar_writing.test_refusals",
    "holds vectors with so many items": "test_jar_writing.test_create_table_keeps_what_sql_says",
    "are added in the version of the rows": "test_jar_merging.test_columns_and_rows_are_one_version",
    "from Spark 4.2 on `INSERT WITH": "test_jar_merging.test_inserts_that_add_columns",
    "of another type than the table's is": "test_jar_merging.test_types_never_change_by_a_statement",
    "and Spark's own counts": "test_jar_merging.test_each_statement_says_what_it_did",
    "the version carries the inserted keys": "test_jar_merging.test_a_declared_key_tells_which_merges_meet",
    "so do statements that add columns": "test_jar_merging.test_statements_that_add_columns_beside_others",
    "lose nothing of columns that they do not name": "test_jar_merging.test_rows_that_move_keep_all_values",
    "changes no rows of a table with nanoseconds": "test_jar_merging.test_a_catalog_that_cuts_values_changes_no_rows",
    "and take the others by name or by position": "test_jar_procedures.test_explain_runs_nothing",
    "and `DESCRIBE PROCEDURE` list these": "test_jar_procedures.test_procedures_are_shown_and_described",
    "`EXPLAIN CALL` runs nothing": "test_jar_procedures.test_explain_runs_nothing",
    "has them as functions": "test_jar_writing.test_procedures",
    "also over Spark Connect": "test_jar_connect.test_a_client_reads_by_sql",
    "Each is one version, and": "test_jar_writing.test_procedures",
    "a task for each group of fragments": "test_jar_writing.test_procedures",
    "a task for each segment of the index": "test_jar_procedures.test_indices_are_built_by_tasks",
    "is learned by the driver, and shared": "test_table_jobs.test_four_tasks_answer_as_one_process",
    "a task for each segment that covers new rows": "test_table_jobs.test_optimized_indices_equal_those_of_one_process",
    "of some fragments each": "test_table_jobs.test_columns_equal_those_of_one_process",
    "or runs twice changes nothing": "test_table_jobs.test_tasks_that_run_twice_leave_no_files",
    "or with the job if it fails": "test_jar_procedures.test_columns_are_added_by_tasks",
    "after a compaction it is planned again": "test_worker_calls.test_a_call_is_planned_again",
    "for appended and rewritten rows, too": "test_table_jobs.test_columns_are_added_beside_other_writers",
    "in a compaction whose rows others have changed": "test_table_jobs.test_a_compaction_whose_tasks_run_twice",
    "calls a function with record batches": "test_jar_procedures.test_columns_are_added_by_tasks",
    "the same minor version of Python": "test_worker_calls.test_functions_of_another_python",
    "**Results.**": "test_jar_writing.test_changes_equal_those_of_pylance",
    "at the level INFO of `lance_io.spark`": "test_jar_merging.test_each_statement_says_what_it_did",
    "and the user interface of Spark, where `configure`": "test_jar_merging.test_each_statement_says_what_it_did",
    "**Statements at the same time.**": "test_jar_writing.test_statements_at_the_same_time",
    "with a `WHEN NOT MATCHED` clause fails": "test_concurrent_statements.test_pairs",
    "**Refused**": "test_jar_writing.test_refusals",
    "fails its task, with the column and the row": "test_jar_writing.test_create_table_keeps_what_sql_says",
    "there when they are named": "test_jar_reading.test_metadata_columns_are_there_when_named",
    "`EXPLAIN` shows it": "test_jar_reading.test_explain_says_what_was_pushed",
    "only those that the query uses": "test_jar_cluster.test_queries_read_what_they_use",
    "computed in Python, as Spark computes them": "test_jar_reading.test_random_predicates_give_the_rows_of_spark",
    "decimals up to 38 digits": "test_pushed_filters.test_random_predicates",
    "Parts of an `AND` that have a form": "test_pushed_filters.test_unknown_parts_are_left_and_others_used",
    "One query may have options of its own": "test_jar_pushing.test_options_of_one_query",
    "`_row_created_at_version` and": "test_jar_pushing.test_versions_of_rows",
    "the planner asks the index, once": "test_jar_pushing.test_filters_use_indices",
    "tasks read the rows that it names": "test_named_rows.test_tasks_read_the_rows_of_a_scan_in_order",
    "more than a million entries": "test_named_rows.test_the_planner_asks_no_index_that_it_would_read_whole",
    "only these rows are planned": "test_jar_pushing.test_limit_and_offset_are_planned",
    "each task ends after so many rows": "test_worker.test_limits_of_a_scan_and_of_each_task",
    "the other columns of its first rows only": "test_jar_pushing.test_first_rows_of_an_order",
    "up to 16,384 rows": "test_jar_pushing.test_orders_that_only_spark_knows",
    "from an index that answers it alone": "test_jar_pushing.test_aggregates_are_those_of_spark",
    "where an index says them exactly": "test_jar_pushing.test_aggregates_are_those_of_spark",
    "It has to cover all rows": "test_jar_pushing.test_deleted_and_new_rows_make_extremes_inexact",
    "by its index if it has one": "test_jar_pushing.test_joins_read_rows_by_index",
    "leaves them with Spark, too": "test_jar_pushing.test_joins_read_rows_by_index",
    "the requests and bytes of its tasks": "test_jar_pushing.test_costs_are_metrics",
    "answered, and how long they waited": "test_worker.test_costs_say_which_reads_a_disk_cache_answered",
    "which one line of the log says": "test_read_tasks.test_reads_without_the_jar_say_what_is_lost",
    "else each task counts": "test_jar_reading.test_counts",
    "so broadcasts small sides": "test_jar_reading.test_joins_know_sizes_and_filter_at_run_time",
    "beside them predicates are left to Spark": "test_jar_reading.test_options_of_a_read_go_together_with_predicates",
    "within a second after it": "test_worker.test_it_ends_with_the_jvm_and_leaves_nothing",
    "The tasks of an executor share it": "test_jar_reading.test_one_worker_for_all_reads",
    "in a folder that only its user can enter": "test_worker.test_the_socket_is_in_a_folder_of_the_user_alone",
    "by a port of the loopback": "test_worker.test_long_paths_lead_to_the_next_folder_and_none_to_a_port",
    "A task that Spark kills ends its scan": "test_jar_cluster.test_a_cancelled_query_ends",
    "is not read ahead beyond": "test_worker.test_a_slow_reader_holds_the_scan_back",
    "an error within 30 seconds": "test_jar_cluster.test_an_executor_without_the_package_says_so",
    "is not tried again for a minute": "test_jar_reading.test_no_python_or_one_without_the_package",
    "JAR and package are of different versions": "test_worker.test_another_version_is_told_before_anything_is_read",
    "an error that names both, before": "test_jar_reading.test_no_python_or_one_without_the_package",
    "Peak of the worker": "test_worker_memory.test_memory_with_slow_readers",
    "two choices of Python": "test_jar_reading.test_another_python_in_the_same_jvm_is_an_error",
    "fail with its signal": "test_jar_reading.test_a_worker_that_dies_in_every_read_is_named",
    "runs them again with a new worker": "test_jar_reading.test_all_tasks_of_a_killed_worker_run_again",
    "each row is there once": "test_speculation.test_reads_that_lose_a_task_give_each_row_once",
    "The overtaken task ends at once": "test_speculation.test_reads_that_lose_a_task_give_each_row_once",
    "while a DataFrame holds a version of it": "test_jar_reading.test_a_dataframe_whose_version_is_gone_says_so",
    "what its administrator sets": "test_jar_connect.test_a_server_that_takes_no_jars_is_explained",
    "refused by name": "test_jar_connect.test_older_sparks_are_refused_by_name",
    "the package was built without a JDK": "test_jar_connect.test_a_package_without_its_jar_says_so",
    "settings do the same, for `spark-submit`": "test_jar_connect.test_settings_alone_do_the_same",
    "Neither catalog nor path is needed": "test_jar_reading.test_options_of_a_read_go_together_with_predicates",
    "which names need not say": "test_jar_reading.test_tables_are_listed_and_described",
    "are options of all its reads": "test_jar_cluster.test_sql_on_executors",
    "committed at or before a time of the session's zone": "test_jar_reading.test_times_are_of_the_zone_of_the_session",
    "refuses them over Spark Connect": "test_jar_connect.test_a_client_reads_by_sql",
    "of structs only these members": "test_worker.test_structs_have_the_members_that_are_asked_for",
    "other predicates, and other types": "test_jar_reading.test_random_predicates_that_spark_changes",
    "reads some whole fragments": "test_jar_pushing.test_samples_of_whole_fragments",
    "other samples, streams": "test_jar_reading.test_samples_are_drawn_by_spark",
    "after `enable` it shows none": "test_jar_reading.test_a_running_session_is_enabled",
    "Its Python is the option": "test_jar_reading.test_which_python_is_chosen",
    "is one of the executor's folder": "test_jar_reading.test_a_running_session_is_enabled",
    "files of `addPyFile` are on its path": "test_jar_cluster.test_an_executor_without_the_package_says_so",
    "of texts, numbers, decimals": "test_jar_pushing.test_aggregates_are_those_of_spark",
    # reading
    "how the read would be cut": "test_planning.test_plan_without_a_session",
    "cut.requests": "test_cluster_reading.test_one_column_reads_its_bytes",
    "cut.partitions[0].rows": "test_planning.test_plans_count_the_rows_that_come",
    "the manifest says it": "test_planning.test_a_count_reads_no_data",
    "takes the same options and reads no rows": "test_local_reading.test_counts_are_those_of_spark",
    "is a source in Python: rows cross": "test_discovery.test_found_without_registering_unless_a_sibling_is_broken",
    "a broken package": "test_discovery.test_found_without_registering_unless_a_sibling_is_broken",
    "gives the format another name": "test_local_reading.test_helpers",
    "a session that is active in them": "test_cluster_writing.test_two_jobs_at_once_both_land",
    "is the way in": "test_local_reading.test_views_and_options_from_sql",
    "Spark asks no source": "test_local_reading.test_a_catalog_table_says_what_to_do_instead",
    "fail before a row is written": "test_local_writing.test_catalog_tables_are_refused",
    "Names in any case": "test_options.test_names_ignore_case_and_underscores",
    "an error with a suggestion": "test_options.test_unknown_options_come_with_a_suggestion",
    "take lists": "test_local_reading.test_helpers",
    "one per load": "test_local_reading.test_errors_reach_the_user",
    "committed at or before a time": "test_planning.test_versions_by_tag_and_time",
    "at most one of the three": "test_options.test_at_most_one_version",
    "columns called `a.x`": "test_planning.test_members_are_called_by_their_path",
    "back-quotes for odd names": "test_options.test_columns",
    "SQL predicate, exact": "test_planning.test_rows_are_those_of_pylance",
    "it is read by one task": "test_planning.test_a_limit_with_a_filter_is_one_task",
    "maximum rows per batch": "test_planning.test_batches_have_the_wanted_size",
    "decoded bytes per task": "test_planning.test_a_large_fragment_is_read_in_tasks_of_the_same_bytes",
    "exact number of tasks": "test_planning.test_cuts_keep_every_row_once_and_balance_bytes",
    "tasks become larger rather than more": "test_planning.test_split_bytes_and_the_cap",
    "a version by number": "test_planning.test_rows_are_those_of_pylance",
    "options of the store": "test_options.test_families_keep_their_names",
    "`_rowid`, `_rowaddr`, `_fragid` as BIGINT": "test_planning.test_fragment_ids",
    "an error for numbers that do not fit": "test_types.test_uint64_as_long",
    "`truncate` cuts them downwards": "test_types.test_nanoseconds_are_cut_downwards",
    "where the bytes are": "test_planning.test_blobs_are_bytes_or_descriptions",
    "requests in flight per worker": "test_planning.test_workers_share_what_an_executor_has",
    "bytes read ahead per task": "test_planning.test_workers_share_what_an_executor_has",
    "the session's zone in `read_table`": "test_local_reading.test_times_without_a_zone_are_the_sessions",
    "and UTC elsewhere": "test_planning.test_versions_by_tag_and_time",
    "options travel with every task": "test_options.test_credentials_do_not_show",
    "in plans and event logs": "test_cluster_reading.test_secrets_do_not_show",
    "which it does not cover": "test_told.test_which_credentials_spark_shows",
    "logs one warning per process": "test_told.test_credentials_are_warned_of_once",
    "refused until a later release": "test_options.test_options_of_a_later_release_are_refused_by_name",
    "All columns are nullable": "test_types.test_the_type_table",
    "| Table | Spark |": "test_types.test_the_type_table",
    "an error where a value does not fit": "test_types.test_decimals_that_spark_cannot_hold",
    "chooses columns, in its order": "test_planning.test_schemas_of_the_user_project",
    "also inside arrays": "test_planning.test_blobs_inside_lists_are_bytes_too",
    "The version is fixed by `load`": "test_cluster_reading.test_a_dataframe_keeps_its_version",
    "asks the store for nothing": "test_planning.test_what_was_loaded_is_planned_without_a_request",
    "Types must be those of the table": "test_planning.test_schemas_of_the_user_project",
    "reads all columns of its load": "test_cluster_reading.test_one_column_reads_its_bytes",
    "the filter of one use": "test_local_reading.test_uses_of_one_dataframe_do_not_share_filters",
    "small fragments share a": "test_planning.test_many_small_fragments_are_one_task",
    "No task reads a manifest": "test_cluster_reading.test_a_dataframe_keeps_its_version",
    "keeps one engine": "test_cluster_reading.test_a_worker_keeps_one_engine",
    "skips objects loaded by then": "test_cluster_reading.test_workers_are_tuned_where_that_is_asked_for",
    "are not ours stay as they are": "test_cluster_reading.test_workers_are_tuned_where_that_is_asked_for",
    "an option of reads and writes": "test_worker_tuning.test_it_is_an_option_of_every_kind_of_job",
    "off by default": "test_worker_tuning.test_without_the_option_nothing_is_touched",
    "as `spark.task.cpus` says": "test_cluster_reading.test_a_worker_keeps_one_engine",
    "leave the process at once": "test_cluster_reading.test_workers_are_tuned_where_that_is_asked_for",
    "stays with the worker": "test_worker_tuning.test_with_it_each_setting_is_made_once",
    "reads nothing before Spark asks": "test_read_tasks.test_nothing_happens_before_a_task_reads",
    "nothing of any other partition": "test_cluster_reading.test_tasks_whose_partitions_have_other_numbers",
    "are bounded by `io_buffer_bytes`": "test_cluster_reading.test_what_a_worker_holds_is_bounded",
    "as soon as Spark has its rows": "test_cluster_reading.test_a_limit_ends_the_scan",
    "names a column that is not there": "test_local_reading.test_errors_reach_the_user",
    "name the table, the version": "test_local_reading.test_errors_of_tasks_name_table_and_rows",
    "Where a cleanup has removed the version": "test_local_reading.test_versions_that_were_cleaned_up_say_so",
    "Without that setting": "test_told.test_how_many_workers_share_an_executor",
    "the number in `local[n]`": "test_local_reading.test_workers_of_local_mode_share_the_machine",
    "read kilobytes": "test_cluster_reading.test_the_first_rows_take_kilobytes",
    "rows for 320 KiB, at least 32": "test_read_tasks.test_the_first_rows_are_read_alone",
    "when Spark has taken these rows": "test_taken.test_what_was_read_makes_room_for_more",
    "Spark closes the connection instead": "test_taken.test_a_connection_that_was_closed_wants_nothing",
    "once and not in every task": "test_read_tasks.test_the_first_rows_cost_a_few_requests_in_one_task",
    # writing and streams
    "creates a missing table": "test_write_jobs.test_rows_of_no_task_make_no_version",
    "UNSUPPORTED_DATA_SOURCE_SAVE_MODE": "test_local_writing.test_modes_that_spark_does_not_have_for_such_sources",
    "`INSERT INTO` and `INSERT OVERWRITE`": "test_local_writing.test_sql_inserts_through_a_view",
    "columns, and members of structs, that the table lacks": "test_write_jobs.test_new_members_come_with_their_rows",
    "an overwrite takes the schema of the data": "test_write_jobs.test_overwrite_keeps_the_schema_unless_told",
    "make vectors of an ARRAY only": "test_write_jobs.test_an_overwritten_schema_is_that_of_the_data",
    "Names that differ only in case": "test_write_jobs.test_vectors_whose_names_differ_in_case",
    "whether an append creates": "test_write_jobs.test_a_missing_table_is_not_created_when_that_is_not_wanted",
    "numbers, switches, dicts and lists": "test_local_writing.test_helpers",
    "as vectors with this number of items": "test_write_jobs.test_vectors",
    "may go into narrower float columns": "test_types.test_schemas_that_do_not_fit",
    "the table's, else 2.2": "test_write_jobs.test_an_older_file_version_is_kept",
    "a hard limit where it is given": "test_write_jobs.test_a_hard_number_of_rows",
    "up to 16 MiB more": "test_write_jobs.test_no_runts_at_the_end",
    "commits nothing new": "test_write_jobs.test_a_job_id_counts_once",
    "attempts after the first": "test_write_jobs.test_attempts_after_the_first",
    "newest versions that are searched": "test_write_jobs.test_a_job_id_counts_once",
    "properties of the transaction": "test_write_jobs.test_a_job_is_one_version_that_names_it",
    "matched by name": "test_write_jobs.test_columns_are_matched_by_name",
    "case-sensitively but for `mergeSchema`": "test_jar_merging.test_merge_schema_never_leaves_a_column_out",
    "without the JAR it is refused": "test_write_jobs.test_names_that_differ_in_case_only",
    "narrower than the table's": "test_jar_merging.test_merge_schema_never_leaves_a_column_out",
    "A nullable column that the data lacks is null": "test_write_jobs.test_columns_are_matched_by_name",
    "and versions of rows are left out": "test_write_jobs.test_columns_are_matched_by_name",
    "makes no difference": "test_write_jobs.test_nullability_is_the_tables",
    "BINARY into a blob column": "test_write_jobs.test_bytes_become_blobs_where_the_table_has_them",
    "or inside arrays": "test_write_jobs.test_arrays_of_bytes_become_lists_of_blobs",
    "its number of items and for nulls": "test_types.test_misfits",
    "text that is JSON into a JSON column": "test_write_jobs.test_texts_become_json_where_the_table_has_it",
    "`array()`, whose items": "test_write_jobs.test_empty_arrays_have_items_of_void",
    "Dictionary columns with": "test_types.test_narrow_dictionaries_hold_so_many_values",
    "under one dictionary": "test_write_jobs.test_narrow_dictionaries_of_many_batches",
    "partition 2, row 10": "test_cluster_writing.test_a_misfit_names_partition_row_and_column",
    "attempts never meet": "test_write_jobs.test_two_attempts_share_no_file",
    "a worker or an executor is killed": "test_cluster_writing.test_tasks_that_die_lose_and_double_nothing",
    "(speculation)": "test_speculation.test_a_straggler_is_overtaken",
    "`commit` fails before": "test_cluster_writing.test_commits_that_die",
    "dies after the version was created": "test_cluster_writing.test_commits_that_die",
    "answer to the deciding request": "test_cluster_writing.test_an_answer_that_is_lost",
    "if the outcome stays unknown": "test_cluster_writing.test_nobody_knows_how_a_commit_ended",
    "others append,": "test_cluster_writing.test_two_jobs_at_once_both_land",
    "both take effect": "test_write_jobs.test_what_else_happens_does_not_stop_an_append",
    "overwritten while an append runs": "test_cluster_writing.test_an_overwrite_beside_an_append",
    "fails with `CommitConflictError`; its files are removed": (
        "test_write_jobs.test_an_append_to_rows_that_were_replaced_is_refused"
    ),
    "the overwrite wins": "test_cluster_writing.test_an_overwrite_beside_an_append",
    "two overwrites": "test_write_jobs.test_the_second_of_two_overwrites_is_refused",
    "nullable, in the version of the rows": "test_write_jobs.test_new_members_come_with_their_rows",
    "an append makes no version": "test_write_jobs.test_rows_of_no_task_make_no_version",
    "removes files of a job": "test_cluster_writing.test_tasks_that_die_lose_and_double_nothing",
    "A `job_id` is looked for when a job starts and before": (
        "test_write_jobs.test_a_job_id_that_another_run_has_committed_meanwhile"
    ),
    "required in streams": "test_options.test_a_streaming_write_needs_a_stream_id",
    "Every batch is one version": "test_stream_jobs.test_a_batch_is_one_version_with_its_mark",
    "may start over under an old": "test_stream_jobs.test_another_checkpoint_needs_a_reset",
    "The place of the checkpoint is compared": "test_stream_jobs.test_another_checkpoint_needs_a_reset",
    "takes the mark back": "test_stream_jobs.test_a_restore_takes_the_mark_back",
    "a batch that was committed": "test_stream_jobs.test_a_replay_is_recognised_and_its_files_removed",
    "with another number of rows": "test_stream_jobs.test_a_replay_is_recognised_and_its_files_removed",
    "batch 0 of a new checkpoint": "test_cluster_writing.test_a_stream_whose_commits_die",
    "a batch from another checkpoint": "test_stream_jobs.test_which_batches_are_committed",
    "an empty batch": "test_stream_jobs.test_a_batch_is_one_version_with_its_mark",
    "complete mode": "test_stream_jobs.test_complete_mode_replaces_the_rows",
    "each as it was when it was appended": "test_version_rows.test_however_it_is_cut_each_row_comes_once",
    "one that does not exist is an error": "test_version_rows.test_only_later_versions",
    "leaves the first part out": "test_version_rows.test_only_later_versions",
    "whole fragments up to here": "test_version_rows.test_limits_take_whole_fragments",
    "needs pyspark 4.2": "test_version_rows.test_limits_are_refused_where_spark_has_none",
    "Deletes, updates, overwrites and restores stop": "test_version_rows.test_changes_stop_the_stream",
    "leave out versions that change rows": "test_version_rows.test_changes_stop_the_stream",
    "give nothing": "test_version_rows.test_however_it_is_cut_each_row_comes_once",
    "cleaned up before it was read": "test_version_rows.test_a_version_that_was_cleaned_up",
    "version that was newest at its start": "test_version_rows.test_available_now_ends_with_what_was_there",
    "on the way to a bucket": "test_cluster_reading.test_what_a_worker_holds_is_bounded",
    "coalesces to `n` tasks": "test_local_writing.test_helpers",
    "reach its workers over Unix sockets": "test_sockets.test_reads_and_writes_over_unix_sockets",
}


NO_VALUE = re.compile(r"(newest|all|none|random|the (table|store)'s)?")  # in the column of defaults
ELSEWHERE = {"io_buffer_bytes": IO_BUFFER_BYTES}  # defaults that the options themselves do not have


@cache
def page() -> str:
    """The page, as one line."""
    return " ".join(PAGE.read_text().split())


@cache
def names_in(module: str) -> set[str]:
    """Names of the tests of a module."""
    tree = ast.parse((HERE / f"{module}.py").read_text())
    found = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, found) and node.name.startswith("test_")}


def test_claims_have_tests() -> None:
    gone = [words for words in CLAIMS if words not in page()]
    assert not gone, "the page no longer says this"
    untested = [test for test in CLAIMS.values() if test.split(".")[1] not in names_in(test.split(".")[0])]
    assert not untested


def option_rows() -> list[tuple[list[str], str]]:
    """The rows of all tables of options: the names in the first cell, and the default."""
    rows = re.findall(r"^\| (`.*?) \| (.*?) ?\| .* \|$", PAGE.read_text().replace("| |", "|  |"), re.MULTILINE)
    return [(re.findall(r"`([\w.<>*-]+)`", cell), default) for cell, default in rows]


def test_the_tables_of_options_are_those_of_the_code() -> None:
    shown = {name for names, _ in option_rows() for name in names}
    families = {"storage.*", "properties.*", f"<column>.{options.VECTOR_SIZE}"}
    named = set(options.OPTIONS) - {"checkpointLocation"}  # which is Spark's own
    assert shown - families == named
    assert families <= shown


def test_the_defaults_are_those_of_the_code() -> None:
    classes = (options.StreamReadOptions, options.StreamWriteOptions)
    in_code = {one.name: one.default for each in classes for one in fields(each)}
    for names, shown in option_rows():
        texts = shown.split(", ")
        for name, text in zip(names, texts if len(texts) == len(names) else [texts[0]] * len(names), strict=True):
            if name not in options.OPTIONS:  # a family
                continue
            option = options.OPTIONS[name]
            default = ELSEWHERE.get(name, in_code[option.field])
            if NO_VALUE.fullmatch(text):
                assert default in (None, "", MISSING), name
            else:
                plain = re.sub(r"(?<=\d),(?=\d)", "", text.strip("`"))
                assert option.parse(name, plain) == default, name
