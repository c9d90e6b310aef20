"""PLANS: computations that yield requests, and what runs them.

    plan             `Plan`, its two drivers, and how plans are put together
    streams          plans that give items while they run
    store_requests   what plans ask of stores
    cpu_requests     work for other threads

A plan is a generator; it yields what it wants done and is sent the answers. The same plan runs in the caller's thread,
where a store answers at once, and on the engine's loop, over any store.
"""
