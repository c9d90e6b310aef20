#!/bin/sh
# Makes the buckets, the policy and the application user of minio.env, by `mc`. Repeats until the user can list the
# bucket, because MinIO forgets users that are made while it still loads its own. A second run changes nothing.
set -eu

folder=$(dirname "$0")
address=${LANCE_IO_MINIO_ADDRESS:-127.0.0.1:9000}
export MC_HOST_root="http://$MINIO_ROOT_USER:$MINIO_ROOT_PASSWORD@$address"

attempts_left=30
until sh "$folder/health.sh"; do
    if [ "$attempts_left" -eq 0 ]; then
        echo "setup.sh: $LANCE_IO_MINIO_USER cannot list $LANCE_IO_MINIO_BUCKET" >&2
        exit 1
    fi
    attempts_left=$((attempts_left - 1))
    {
        mc mb --ignore-existing "root/$LANCE_IO_MINIO_BUCKET" &&
            mc mb --ignore-existing "root/$LANCE_IO_MINIO_PRIVATE_BUCKET" &&
            mc admin policy create root "$LANCE_IO_MINIO_POLICY" "$folder/policy.json" &&
            mc admin user add root "$LANCE_IO_MINIO_USER" "$LANCE_IO_MINIO_SECRET" &&
            mc admin policy attach root "$LANCE_IO_MINIO_POLICY" --user "$LANCE_IO_MINIO_USER"
    } || sleep 1 # the server does not answer yet
done
