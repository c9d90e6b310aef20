"""A cache on local disk, shared by processes, of what never changes in a store.

fixed_objects.py   which objects never change, and by what a copy is found
private_folder.py  a folder that no other user can have written
database_files.py  its files: an SQLite index and the bytes; opened, watched, begun anew after damage
free_blocks.py     which blocks of the bytes are free
range_database.py  the copies in these files within a bound: looking up, keeping, making room
disk_cache.py      that as one process uses it: threads, what waits to be written, pauses, forks, counters
cache_counts.py    what is counted of one, and of all in a process
cached_store.py    a store that looks there first

Why SQLite, and what was measured: docs/decisions/008-disk-cache.md.
"""
