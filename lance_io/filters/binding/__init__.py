"""BINDING: an expression tree against a schema, checked, with every type explicit.

    binder.py       tree + schema -> checked tree
    sql_binder.py   the same for trees of SQL text: names without case, functions, constants
    arguments.py    arguments of SQL functions, checked and converted
    nullability.py, simplify.py   columns that may be null, and constants

The type of a computation comes from computing it on no rows (`evaluate.py`).
"""
