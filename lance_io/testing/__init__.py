"""For people who write stores or test programs that use them; shipped, never imported by the product.

conformance.py   the suite that every store passes (needs pytest and pytest-asyncio)
record.py        a store that writes down each request as a line of text
latency.py       a store where every request takes one unit of virtual time: elapsed time = dependent rounds
faults.py        a store that fails by script
manifest_rows.py a database of manifests in memory, for commits that need one
turnstile.py     stores whose calls wait until a test says who goes next
"""
