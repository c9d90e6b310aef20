"""Tables in Azure blob storage and compatible services (`lance_io[azure]`).

    container.py          `AzureStore`: one container
    container_options.py  its settings from URL, storage options and environment
    account_clients.py    credentials and clients of one event loop
    authorization.py      authorisation of requests: signature, SAS or token
    machine_identity.py   tokens from a service named by options
    fabric_tokens.py      tokens from Microsoft Fabric
    container_site.py     `Site` of a container: its URL, authorisation and error answers
    blob_listing.py       pages of a listing through our own HTTP client
    blocks.py             uploads in blocks
    blob_errors.py        maps Azure's answers and its library's errors to ours

azure.storage.blob, azure.identity and aiohttp are imported on demand inside functions.
"""
