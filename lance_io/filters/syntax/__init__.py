"""USER'S TEXT OR EXPRESSION -> the expression tree, not yet bound to a schema.

    sql_dialect.py        the grammar of SQL text, on top of sqlglot
    sql_text.py           sqlglot's tree -> ours
    arrow_expressions.py  `pyarrow.compute` expressions -> ours, by the tokens of their pickled form
    ipc_metadata.py       these tokens: the metadata of an Arrow IPC file, in order
    literal_lists.py      long lists of IN, cut out before parsing
    literal_shapes.py     short texts that differ only in the values that they compare with
    tokens.py             text cut into tokens, for the small languages inside of SQL

sqlglot is slow to load: import `sql_dialect` and `sql_text`, which import it, for text only.
"""
