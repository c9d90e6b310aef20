"""OPENING a data file: footer, schema, columns, and which of them a projection reads."""
