"""PAGE ⇄ ARROW: page layouts as generators that yield byte ranges and receive buffers.

Each file version has its folder; a later version holds only the differences. A layout does no I/O: it yields `Ranges`
and receives `Fetched`; each `yield` is one I/O round. `api` is the contract, `open_page` picks the layout of a page,
`values` turns decoded buffers into Arrow arrays. Pure: no store, no scheduler, no event loop.
Specifications: structural encodings 2.1, encodings 2.0, legacy 0.1.
"""
