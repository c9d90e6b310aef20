"""Look-ups of rows by values of an indexed column, in the order of the values. Scans find rows beyond the index."""
