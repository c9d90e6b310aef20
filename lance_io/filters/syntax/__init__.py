"""WHAT USERS WRITE -> the expression tree, which knows no schema yet.

    sql_dialect.py        the grammar of SQL text, on top of sqlglot
    sql_text.py           sqlglot's tree -> ours
    arrow_expressions.py  `pyarrow.compute` expressions -> ours, by the tokens of their pickled form
    ipc_metadata.py       these tokens: the metadata of an Arrow IPC file, in order
    tokens.py             text cut into tokens, for the small languages inside of SQL

sqlglot takes a while to load: what imports it, `sql_dialect` and `sql_text`, is imported for text only.
"""
