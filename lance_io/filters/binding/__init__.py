"""THE EXPRESSION TREE, and what a schema makes of it: checked, with every type explicit.

    expression_tree.py  the nodes, and how they are shown
    sql_types.py        types by their SQL names, and their kinds
    coercion.py         which types go together
    casts.py            conversions as SQL has them
    binder.py           tree + schema -> checked tree
    sql_binder.py       the same for trees of SQL text: names without case, functions, constants
    arguments.py        arguments of SQL functions, checked and converted

What a computation gives is learnt by computing it on no rows (`evaluate.py`).
"""
