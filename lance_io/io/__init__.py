"""Many ranges, one budget: everything between a decoder that wants byte ranges and a store that serves requests.

    budget.py         which requests may be fetched ahead, and which must wait (pure)
    estimates.py      what requests count for in it until its reads are planned (pure)
    slots.py          how many requests one store gets at once
    reads.py          requests, and the physical reads that answer them
    scheduler.py      what one scan or take asks for: admission, order, and what callers hold of it
    dispatch.py       planned reads on their way: merging, priorities, slots, cancellation
    shared_limits.py  what the datasets of a session share: slots, bytes, an order, counters
    spares.py         memory of large results that is used again
    cache.py          byte-bounded LRU of search structures, one load per key at a time
    stats.py          what was asked for, what was read, in how many rounds
    call_metrics.py   the same of each call, for whoever watches them
    trace_events.py   what happens to tables, for whoever listens

May import `store`, `runtime` and below. Knows nothing of pages, columns or tables.
"""
