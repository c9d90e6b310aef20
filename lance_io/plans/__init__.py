"""PLANS: computations that yield requests, and what runs them.

A plan is a generator; it yields what it wants done and is sent the answers. The same plan runs in the caller's thread,
where a store answers at once, and on the engine's loop, over any store.
"""
