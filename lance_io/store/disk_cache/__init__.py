"""A disk cache of immutable objects, shared by processes.

fixed_objects.py   which objects are immutable, and the keys of their copies
private_folder.py  a folder that no other user can have written
database_files.py  its files: an SQLite index and the bytes; opened, checked, replaced after damage
free_blocks.py     free blocks of the file of bytes
range_database.py  the copies in these files within a size limit: lookup, insertion, eviction
disk_cache.py      one process's use of it: threads, write queue, pauses, forks, counters
cache_counts.py    counters of one cache, and of all in a process
cached_store.py    a store that looks there first

Why SQLite, and measurements: docs/decisions/008-disk-cache.md.
"""
