"""ROWS INTO TABLES: any form of data as record batches, data files, and the version that holds them.

write_fragments                    fragments without a version, for commits of many processes
write_arguments, run_write         keywords, checked; rows pulled in the caller's thread, or on its loop
input_data, pydantic_schema, source_files, blob_arrays   any form of data as record batches
data_files, write_progress         record batches to data files, one fragment each
write_rows                         create, append, overwrite
group_append, append_queues        group commit: many appends become one version; queues of waiting appends
group_commit, group_version        the commits of one group, and the files of one such version
"""
