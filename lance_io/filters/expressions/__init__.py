"""EXPRESSIONS: the tree, its types and conversions.

expression_tree.py           the nodes, and their text
sql_types.py                 types by their SQL names, and their kinds
coercion.py                  common types of operands
casts.py, times_of_day.py    SQL's conversions
moments.py                   overflow checks for dates, moments and durations
stored_json.py               JSON as columns store it
"""
