"""Wide tables and many files: the group `shapes`.

    shapes/wide/...                 a new dataset of 5,000 columns in 3 files, and one read
    shapes/cold/FILESxROWS/...      a new dataset of so many files of so many rows, and a scan, for each file version
    shapes/open/TABLE               a new dataset of a table of few files, and one row
    shapes/lag/...                  how long these reads keep a caller's event loop waiting at most
    shapes/warm/FILESxROWS/...      scans, a filter and a take of an open dataset
    shapes/growth/FILESxROWS        by how much a fresh process grows that goes through all batches
    shapes/write/COLUMNS            a new table of 1,000 rows of so many columns, nothing flushed
    shapes/append/COLUMNS           the same rows appended; 3 rows of 3,000 columns
    shapes/writers/8                appends of eight processes to one table

shape_tables   the tables
cold_reads     what is asked of a dataset that nobody has opened; cold_probe asks it in a process of its own
warm_reads     what is asked of an open dataset, and memory
shape_writes   writes, appends, and many processes
shape_cases    all of them

Nothing is imported here: `cold_probe` runs in processes that load one library only.
"""
