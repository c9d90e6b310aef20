"""Tables in S3 and compatible services (`lance_io[s3]`).

    bucket.py           `S3Store`: one bucket
    bucket_options.py   storage options and environment variables
    endpoints.py        endpoints from variables and profiles
    oss_options.py      options of an Alibaba OSS bucket, translated to S3 options
    aws_profiles.py     sections of AWS profile files
    plain_profile.py    simple profiles, such as ones with static keys, read without AWS's library
    loop_state.py       credentials and clients of one event loop
    credentials.py      credentials that are renewed before expiry and searched again after a refusal
    roles.py            credentials of a role named by options
    server_clock.py     correction of a wrong local clock for signatures
    encryption.py       customer-provided keys (SSE-C) and checksums
    site.py             `Site` of a bucket: its URL, signatures and error answers
    client_gets.py      GETs of S3 Express, through aiobotocore
    client_sends.py     counts requests that aiobotocore sends
    service_clients.py  aiobotocore's clients of STS and DynamoDB
    listing.py          pages of a listing through our own HTTP client
    multipart.py        uploads in parts
    error_codes.py      maps answers of S3 and errors of its clients to our errors

aiobotocore, botocore and aiohttp are imported on demand inside functions; reading a first row needs none of them.
"""
