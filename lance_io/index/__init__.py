"""What finds rows without looking at all columns of them. Pure: no store, no loop.

vector/  distances between vectors, and the rows nearest to a query
"""
