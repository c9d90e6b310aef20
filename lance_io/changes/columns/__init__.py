"""Columns that are added, dropped, renamed and cast, for rows that stay where they are.

A change of the schema writes nothing; new values are one more data file for each fragment, which holds them only.
"""
