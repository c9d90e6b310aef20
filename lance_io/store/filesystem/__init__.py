"""Tables on filesystems of other libraries: fsspec, pyarrow, stores of obstore.

    filesystem_store.py   the adapter: an `ObjectStore` over the calls of any of them
    filesystem_calls.py   interface of these calls; threads for blocking ones; errors without credentials
    fsspec_calls.py       fsspec, asynchronous and blocking
    pyarrow_calls.py      pyarrow.fs
    obstore_calls.py      obstore
    resolve.py            the library of a filesystem object, and the path of a URI in it

None of the libraries is imported before a user passes a filesystem of it.
"""
