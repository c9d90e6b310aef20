"""KEYS: rows by the values of an indexed column, in the order of the values, by scans."""
