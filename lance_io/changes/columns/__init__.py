"""Columns that are added, dropped, renamed and cast; rows keep their fragments.

A change of the schema writes no data. New values are written to one more data file for each fragment.
"""
