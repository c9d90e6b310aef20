"""GETs over HTTP/1.1, for every store that is reached by it: a store says where an object is and signs, and no more.

    gets.py          `HttpGets`: the downloads of one store, and its questions
    attempt.py       one request for a download; what became of it, in our errors
    range_get.py     the GET of a range as nearly all go: all of it in one object, many together
    pool.py          connections to one origin, shared by all stores of a loop: opening, idling, spreading, deadlines
    connection.py    one connection: a request out, an answer in, its body straight to where the download wants it
    socket_group.py  what has come on many plain sockets, read by one call
    exchange.py      one request and what is known of its answer
    addresses.py     a host name's addresses, taken in turn
    tcp.py           connections over plain TCP without a task for each
    tls.py           whom to trust
    sigv4.py         signatures of requests, as Amazon has them

A GET costs no task and no timer: connections call back, and one sweep per pool looks at all deadlines.
"""
