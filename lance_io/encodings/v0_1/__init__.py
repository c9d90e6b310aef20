"""Pages of FILE VERSION 0.1: all batches of a file are read at once for each leaf column. Pure."""
