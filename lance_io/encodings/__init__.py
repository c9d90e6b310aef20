"""PAGE ⇄ ARROW: page layouts as computations that yield byte ranges and are sent buffers.

One folder per file version; a later version holds only what differs. A layout never reads: it yields `Ranges`, is sent
`Fetched`, and every `yield` is one I/O round. `api` is the contract, `registry` picks the layout for a page, `values`
turns decoded buffers into Arrow arrays. Pure: no store, no scheduler, no event loop.
Specifications: structural encodings 2.1, encodings 2.0, legacy 0.1.
"""
