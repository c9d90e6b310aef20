#!/bin/sh
# Succeeds when the application user can list its bucket: the server is up and set up.
set -eu

address=${LANCE_IO_MINIO_ADDRESS:-127.0.0.1:9000}
export MC_HOST_application="http://$LANCE_IO_MINIO_USER:$LANCE_IO_MINIO_SECRET@$address"
exec mc ls "application/$LANCE_IO_MINIO_BUCKET" >/dev/null
