"""What stores behind HTTP have in common, whatever their dialect (S3, Google, Azure).

    cloud_store.py     `CloudStore`: reads, attempts of calls, one set of connections per event loop, forks
    connections.py     what a store has open on one event loop; it stays so for a moment after the last reader
    loop_clients.py    clients of that loop, which stores of the same options share
    renewal.py         tokens and the like, renewed ahead of their end
    provided_credentials.py  those that somebody gives anew, shared by all loops
    refused_answers.py what an answer that is no success means, by status and code
    client_options.py  options and variables of all clients: timeouts, attempts, certificates, proxies

A store of its own adds a `Site` (`store/http/gets.py`), its calls for listing and writing, and how it is authorised.
"""
