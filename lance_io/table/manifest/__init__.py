"""A VERSION of a table: its manifest, fragments, deletions, row ids, index section, and the files that hold them."""
