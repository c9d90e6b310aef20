"""GETs over HTTP/1.1, for every store that is reached by it: a store says where an object is and signs, and no more.

    gets.py        `HttpGets`: a download -> attempts; what became of them, in our errors
    range_get.py   the GET of a range as nearly all go: all of it in one object
    pool.py        connections to one origin, shared by all stores of a loop: opening, idling, spreading, deadlines
    connection.py  one connection: a request out, an answer in, its body straight to where the download wants it
    exchange.py    one request and what is known of its answer
    addresses.py   a host name's addresses, taken in turn
    tcp.py         connections over plain TCP without a task for each
    tls.py         whom to trust

A GET costs no task and no timer: connections call back, and one sweep per pool looks at all deadlines.
"""
