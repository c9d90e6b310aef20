"""CHANGES of a table: transactions and operations, conflicts and rebase, and the version that comes of them."""
