"""STREAMS: out of the versions of a table, and into it."""
