"""READING in Spark: partitions, their serialized form for tasks, and the tasks' batches."""
