"""ROWS BY NUMBER: positions, row ids and addresses to fragments and offsets, and what reads them.

take_rows                     takes
row_arithmetic, row_columns   positions, offsets, addresses; system columns. Pure
deletions_and_ids             deletion vectors and stable row ids, loaded on demand
read_rows                     what is asked of the file room
"""
