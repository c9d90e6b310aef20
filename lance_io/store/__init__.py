"""Bytes at a key: the object stores that tables live in.

Everything above this room sees one protocol, `lance_io.store.api.ObjectStore`, and the errors of `lance_io.errors`;
no exception of a client library leaves it. Knows nothing of Lance files. May import `spans`, `limits`, `errors` and
`runtime`; client libraries are imported inside the function that opens their scheme. Design: one small async
protocol, plus a synchronous batch entry (`SyncReads`) where bytes are at hand without waiting (local, memory).
"""
