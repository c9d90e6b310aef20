"""Pages of FILE VERSION 0.1: a leaf column is read through all batches of its file at once. Pure."""
