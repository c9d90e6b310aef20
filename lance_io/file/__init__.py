"""ONE .lance OBJECT: opening it, and driving the layouts of its pages over a store.

    source    what the table says about a file and a fragment, and what reading needs: store, cache, scheduler
    steps     computations that ask for bytes, joined to rounds
    opening   footer, schema and column metadata in one or two reads
    opened    the opened file: columns and their pages
    rows      selected rows of a file
    drive     the two drivers: in the caller's thread, or on the engine's loop
    table     many fragments: takes and scans of projected fields
    reader    `LanceFileReader`, `AsyncFileReader`

Everything that decides is in generators that both drivers run; only `drive` and `table` read or await.
"""
