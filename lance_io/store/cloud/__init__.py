"""Common parts of cloud stores (S3, Google, Azure).

    cloud_store.py           `CloudStore`: reads, retries, connections per event loop, forks
    connections.py           connections of a store on one event loop; they stay open briefly after the last reader
    loop_clients.py          clients of one event loop, shared by stores with the same options
    renewal.py               credentials that are renewed before they expire
    provided_credentials.py  credentials from a storage options provider, shared by all loops
    refused_answers.py       maps HTTP status and error code to our errors
    client_options.py        options and variables of all clients: timeouts, retries, certificates, proxies

Each store adds a `Site` (`store/http/gets.py`), calls for listing and writing, and authorisation.
"""
