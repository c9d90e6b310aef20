"""Real servers for tests and trials, without Docker, each on 127.0.0.1: S3 twice, Google Cloud Storage, Azure.

    local_server.py  what they share: a program found or built once, a process on a free port, ready and ended
    minio.py         MinIO (S3), with a user who may not do everything
    versity.py       versitygw (S3 over a folder): written by others, so that S3 is more than what MinIO does
    fake_gcs.py      fake-gcs-server (Google Cloud Storage)
    azurite.py       Azurite (Azure), which npm installs

    python -m servers --build-only                   make sure that there are all of them
    python -m servers minio                          start one, print how to reach it, serve until Ctrl-C
    eval "$(python -m servers minio --background)"   start it and return; $LANCE_IO_MINIO_PID is the process to end

Another one is a module with a `LocalServer` in it and its line in `servers/__main__.py`.
"""
