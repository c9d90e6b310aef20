"""READING in Spark: partitions, what travels to tasks, and what a task does."""
