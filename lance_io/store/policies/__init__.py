"""Policies for requests over a network, for any store: decisions, separate from the transports that send requests.

    logical_read.py  a read until all its bytes have arrived: a slot, attempts, pauses, retries
    download.py      the next range to request, checks of answers, the bytes received so far
    hedge.py         when to repeat a late request, and the race of the two
    transport.py     interface of the transports that send GETs
    throttle.py      which requests wait before they are sent to a bucket, and their order
    pace.py          the rate of requests to a bucket that refuses some

Nothing here opens a connection. The decisions are pure: times are arguments, of any monotonic clock.
"""
