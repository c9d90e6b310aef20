"""Bytes at a key: the object stores that tables live in.

Everything above this room sees one protocol, `lance_io.store.api.ObjectStore`, and the errors of `lance_io.errors`;
no exception of a client library leaves it. Knows nothing of Lance files. May import `spans`, `limits`, `errors` and
`runtime`; client libraries are imported inside the function that opens their scheme. Design: one small async
protocol, plus a synchronous batch entry (`SyncReads`) where bytes are at hand without waiting (local, memory).

    api.py, costs.py, counters.py, failures.py   what a store promises, costs, counts, and how it fails
    url.py, storage_options.py                   from a URI and its options to a store
    memory.py, local/, s3/, gcs/, azure/, mounted.py   the stores
    http/, policies/                             GETs over HTTP, and what makes them bearable, for any store behind it
    cloud/                                       what all stores in the cloud share
    upload.py, bounds.py, descriptors.py, forking.py, forwarding.py, probe.py   what some of them share
"""
