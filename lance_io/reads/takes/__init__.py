"""TAKES: rows by position, row id or address, in the caller's order, and blobs as files.

take_rows       one request per run of pages, for all fragments at once
ordered_pieces  pieces of a take in the caller's order
take_items      single items of lists
blob_file       a blob as a file, plain and awaitable
"""
