"""Tables in Google Cloud Storage (`lance_io[gcs]`).

    gcs_store.py      `GcsStore`: one bucket
    gcs_options.py    storage options and environment variables
    gcs_state.py      state of one event loop: tokens, the client for writes
    google_tokens.py  OAuth tokens, renewed before they expire
    gcs_site.py       `Site` of a bucket: its URL, authorisation and error answers
    json_client.py    requests of the JSON API other than ranged GETs, through gcsfs
    resumable.py      uploads in parts
    resources.py      objects of the JSON API
    refusals.py       maps error answers to our errors

gcsfs, google-auth and aiohttp are imported on demand inside functions; reading a public bucket or with a given token
needs none of them.
"""
