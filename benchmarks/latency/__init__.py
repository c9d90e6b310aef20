"""Times on a bucket, under latency: `make bench-latency`, described in `docs/benchmarks.md`.

proxy/      stands in front of MinIO (Rust): latency, bandwidth, throttling, faults, a log of every request
proxyport   starts it, sets it, asks it
requestlog  what its log says: requests, rounds, in flight, ranges that can be replayed
worlds      the server, and the tables in its bucket
questions   what a worker can be asked, and which rows
replaying   the bare client, which fetches given ranges and does nothing else
contenders  the libraries behind one interface
replayers   contenders that fetch what another one fetched
callers     many at once, and what they wait for
worker      a process that answers questions for one contender
firstrow    a new process up to its first row
crew        the workers, from outside
scenarios   all that is measured, as data
playing     plays a scenario: contenders take turns, answers are compared
goals       what must be reached
findings    results: turns, medians, JSON
tabulated   tables of them
plots       their pictures
"""
