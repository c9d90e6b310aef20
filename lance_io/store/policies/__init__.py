"""What makes requests to a store behind a network bearable, whichever store it is: what decides, apart from what sends.

    logical_read.py  a read until all its bytes are here: a slot, attempts, pauses; when to make a request again
    download.py      what to ask for next, whether an answer fits, what has arrived
    hedge.py         when to ask again for an answer that is late; the race of the two
    transport.py     what sends GETs, as the others see it
    throttle.py      what waits before it is sent to a bucket, and in which order
    pace.py          how fast requests follow each other to a bucket that refuses some

Nothing here opens a connection. What decides is pure: times are arguments, of any monotonic clock.
"""
