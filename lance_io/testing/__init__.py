"""For authors of stores, and for tests of programs that use stores; shipped, never imported by the product.

conformance.py   the suite that every store passes (needs pytest and pytest-asyncio)
record.py        a store that records each request as a line of text
latency.py       a store where every request takes one unit of virtual time: elapsed time = dependent rounds
faults.py        a store that fails by script
manifest_rows.py a manifest database in memory, for commits that need one
turnstile.py     stores whose calls wait until a test chooses the next one
wrap.py          base class of stores that wrap a store
"""
