"""WRITES of the JVM's requests: tables of a catalog created, filled, changed and dropped.

change_requests   the requests by name
table_properties  properties of SQL: ours, Spark's, and those that a table keeps
created_schemas   columns of SQL as they are stored, with comments, lengths of CHAR and VARCHAR, NOT NULL
namespaces        folders of tables, with properties
planned_writes    the driver: a write decided once, and its commit
task_rows         a task: rows of the JVM to data files
stored_names      columns whose names differ from the table's in case only
dynamic_keys      which rows a dynamic overwrite replaces
altered_tables    ALTER TABLE
procedures        CALL: planned on the driver, run as tasks, committed once
carried_functions a caller's function on its way to the tasks
"""
