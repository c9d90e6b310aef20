"""CHANGES: what turns data and wishes into new table versions.

input        any form of data as record batches of one schema
fit          data against the schema of the table it joins
datafiles    record batches to data files, one fragment each
operations   the public forms of transactions
...
"""
