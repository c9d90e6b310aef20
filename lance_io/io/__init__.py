"""Scheduling of reads: everything between a decoder that needs byte ranges and a store that serves requests.

    budget.py         admits requests for prefetching, within a budget of bytes (pure)
    estimates.py      upper bounds of the bytes of requests before their reads are planned (pure)
    slots.py          bounds the concurrent requests to one store
    reads.py          requests, and the physical reads that answer them
    scheduler.py      the interface of one scan or take: admission, order, handles
    dispatch.py       sends planned reads: merging, priorities, slots, cancellation
    shared_limits.py  limits that the datasets of a session share: slots, bytes, priority, counters
    buffer_pool.py    reusable memory for large results
    cache.py          byte-bounded LRU cache of search structures, with single flight per key
    stats.py          counts ranges, reads, bytes and rounds
    call_metrics.py   the same counts per call, for watchers
    trace_events.py   events of tables, for listeners

May import `store`, `runtime` and below. Independent of pages, columns and tables.
"""
