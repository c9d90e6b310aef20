"""Sets of rows: the results of indices, and their form in index files."""
