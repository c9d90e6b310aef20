"""ROWS INTO TABLES: any form of data as record batches, data files, and the version that holds them.

write_dataset, write_fragments     the functions that users call
write_arguments, run_write         their keywords, checked; rows pulled in the caller's thread, or on its loop
input_data, pydantic_schema, blob_arrays, schema_fit   any form of data as record batches; against the table's schema
data_files, write_progress         record batches to data files, one fragment each
write_rows                         create, append, overwrite
group_append, group_version        many appends as one version: who waits for which; writing and committing one
"""
