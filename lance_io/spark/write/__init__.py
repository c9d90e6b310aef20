"""WRITING in Spark: files by tasks, one version by the driver program."""
