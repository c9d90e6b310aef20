"""GETs over HTTP/1.1 for every HTTP store: the store only locates objects and signs requests.

    gets.py          `HttpGets`: downloads and queries of one store
    attempt.py       one request of a download; maps its outcome to our errors
    range_get.py     fast path for GETs of ranges: one object per GET, sent in batches
    pool.py          connections to one origin, shared by all stores of a loop: opening, idling, balancing, deadlines
    connection.py    one connection: sends a request, reads the answer, receives its body into the download's memory
    socket_group.py  reads many plain sockets by one call
    exchange.py      one request and its answer
    addresses.py     addresses of a host name, used round-robin
    tcp.py           plain TCP connections without a task for each
    tls.py           TLS contexts: trusted certificates
    sigv4.py         AWS request signatures

A GET needs no task and no timer: connections call back, and one sweep per pool checks all deadlines.
"""
