"""Bytes at a key: the object stores that tables live in.

Packages above this one use one protocol, `lance_io.store.api.ObjectStore`, and the errors of `lance_io.errors`;
exceptions of client libraries never leave it. Independent of Lance files. May import `spans`, `limits`, `errors` and
`runtime`; client libraries are imported inside the function that opens their scheme. Design: one small async
protocol, plus synchronous batch reads (`SyncReads`) for stores that need no waiting (local, memory).

    api.py, costs.py, counters.py, failures.py   interface, cost model, counters and errors of a store
    url.py, storage_options.py                   from a URI and its options to a store
    memory.py, local/, s3/, gcs/, azure/, mounted.py   the stores
    http/, policies/                             GETs over HTTP; retries, hedging and throttling for any store
    cloud/                                       shared by all cloud stores
    upload.py, bounds.py, descriptors.py, forking.py, forwarding.py, probe.py   shared by some of them
"""
