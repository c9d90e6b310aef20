"""The store of the local disk.

disk.py           `LocalStore`: reads in the caller's thread, without a loop, or on a small pool
open_files.py     cache of open files
atomic_writes.py  files that appear whole or not at all
batch_writes.py   several small files in one batch, with fewer flushes
unlinking.py      removal of many files
system_calls.py   errors of the system; listings in key order
"""
