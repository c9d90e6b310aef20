#!/bin/sh
# Runs MinIO in the container with the arguments given, and sets it up. The container ends when MinIO does, or when the
# set-up fails.
set -eu

minio "$@" &
server=$!
trap 'kill -TERM "$server"' TERM INT

sh "$(dirname "$0")/setup.sh"

wait "$server" || true # the first `wait` returns when a signal arrives
wait "$server"
