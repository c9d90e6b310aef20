"""ROWS BY NUMBER: positions, row ids and addresses to fragments and offsets.

row_arithmetic, row_columns   positions, offsets, addresses; system columns. Pure
deletions_and_ids             deletion vectors and stable row ids, loaded on demand
read_rows                     requests for data files
rebatch                       batches of a requested size
"""
