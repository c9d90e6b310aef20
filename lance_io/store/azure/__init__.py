"""Tables in Azure's blob storage, and in what speaks its protocol (`lance_io[azure]`).

    container.py          `AzureStore`: one container
    container_options.py  what URL, storage options and environment say about it
    account_clients.py    credentials and clients of one event loop
    authorization.py      how requests are signed, or what stands for a signature
    machine_identity.py   tokens by a service that options name
    container_site.py     what `http/` has to know of a container: where, authorised how, which refusals
    sdk_gets.py           GETs by way of Azure's own library instead
    blob_listing.py       pages of a listing by our own HTTP client
    blocks.py             uploads in blocks
    blob_errors.py        what Azure answers and its library raises, as errors of ours

azure.storage.blob, azure.identity and aiohttp are imported inside functions only, when they are needed.
"""
