"""Takes from files: locates rows in pages, loads page indexes, and reads the rows of all files in one round."""
