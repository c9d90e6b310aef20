"""PLANS: computations that yield requests, and their drivers.

    plan             `Plan`, its two drivers, and requests that combine plans
    streams          plans that yield items while they run
    store_requests   requests to stores
    cpu_requests     requests for work in other threads
    beside           requests to run plans in the background
    copy_objects     plans that copy objects
    lazy_module      modules of plans, imported on first use

A plan is a generator: it yields requests and is sent their answers. The same plan runs in the caller's thread, if the
store answers synchronously, and on the engine's loop, over any store.
"""
