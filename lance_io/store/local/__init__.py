"""Tables on the local disk.

disk.py           `LocalStore`: reads in the caller's thread, without a loop, or on a small pool
open_files.py     files that stay open between reads
atomic_writes.py  files that appear whole or not at all
system_calls.py   what errors of the system mean; listings in key order
"""
