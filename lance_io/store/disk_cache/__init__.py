"""A cache on local disk, shared by processes, of what never changes in a store.

fixed_objects.py   which objects never change, and by what a copy is found
range_database.py  the copies in one SQLite file within a bound: looking up, keeping, making room, damage
disk_cache.py      that file as one process uses it: threads, what waits to be written, pauses, forks, counters
cached_store.py    a store that looks there first

Why SQLite, and what was measured: docs/decisions/008-disk-cache.md.
"""
