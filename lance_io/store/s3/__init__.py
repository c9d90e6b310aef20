"""Tables in S3 and in everything that speaks its protocol (`lance_io[s3]`).

    bucket.py          `S3Store`: one bucket
    bucket_options.py  what storage options and environment say about it
    oss_options.py     the same of a bucket of Alibaba's, in terms of S3
    aws_profiles.py    AWS's files of profiles, as sections
    plain_profile.py   those that say something plain, such as static keys
    loop_state.py      credentials and clients of one event loop
    credentials.py     renewed ahead of their end, and looked for again where they are refused
    roles.py           those of a role that options name
    encryption.py      keys of one's own for objects, and checksums
    site.py            what `http/` has to know of a bucket: where, signed how, which refusals
    client_gets.py     GETs by way of aiohttp or aiobotocore instead
    client_sends.py    how often aiobotocore sends a request
    service_clients.py its clients of STS and DynamoDB
    listing.py         pages of a listing by our own HTTP client
    multipart.py       uploads in parts
    error_codes.py     what S3 answers and its clients raise, as errors of ours

aiobotocore, botocore and aiohttp are imported inside functions only, when they are needed: a first row needs none.
"""
