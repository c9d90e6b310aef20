"""BINDING: an expression tree against a schema, checked, with every type explicit.

    binder.py       tree + schema -> checked tree
    sql_binder.py   the same for trees of SQL text: names without case, functions, constants
    arguments.py    arguments of SQL functions, checked and converted
    nullability.py  whether a bound expression may be null
    simplify.py     constants folded, needless conditions left out
    list_elements.py  the items of lists that an expression reads

The type of a computation is found by computing it on no rows (`evaluate.py`).
"""
