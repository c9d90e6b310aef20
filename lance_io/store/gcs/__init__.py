"""Tables in Google Cloud Storage (`lance_io[gcs]`).

    gcs_store.py    `GcsStore`: one bucket
    gcs_options.py  what storage options and environment say about it
    gcs_state.py    what it has open on one event loop: tokens, the client that writes
    tokens.py       OAuth tokens, renewed ahead of their end
    gcs_site.py     what `http/` has to know of a bucket: where, authorised how, which refusals
    json_client.py  requests of the JSON API other than ranged GETs, by way of gcsfs
    gcsfs_gets.py   GETs by way of gcsfs, too
    resumable.py    uploads in parts
    resources.py    objects as the JSON API describes them
    refusals.py     what Google answers, as errors of ours

gcsfs, google-auth and aiohttp are imported inside functions only, when they are needed: who reads a public bucket, or
with a token at hand, needs none.
"""
