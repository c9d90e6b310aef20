"""Tables on filesystems of other libraries: fsspec's, pyarrow's, obstore's stores.

    filesystem_store.py   the one adapter: an `ObjectStore` over the calls of any of them
    calls.py              what it asks of them; threads for those that block; errors without credentials
    fsspec_calls.py       fsspec, asynchronous and blocking
    pyarrow_calls.py      pyarrow.fs
    obstore_calls.py      obstore
    place.py              which of them an object is, and where a URI lies in it

None of the libraries is imported before somebody names a filesystem of it.
"""
