"""Resolves the URI of a table to its location and commit handler.

    s3+ddb://bucket/path?ddbTableName=table   S3 with DynamoDB beside it
    all others                                see `open_store`; committed by create-if-absent

Storage options of the database: `dynamodb_endpoint` (environment: DYNAMODB_ENDPOINT, then the variables of AWS's tools,
see `store/s3/endpoints.py`); credentials and region are those of the bucket.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.store.storage_options import normalize
from lance_io.store.url import open_store, uri_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.commit import dynamodb, external
    from lance_io.commit import lock as locks
    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.lock import CommitLock
    from lance_io.store.s3 import bucket as s3
    from lance_io.store.url import Location
else:
    locks = lazy_module("lance_io.commit.lock")
    dynamodb = lazy_module("lance_io.commit.dynamodb")
    external = lazy_module("lance_io.commit.external")
    s3 = lazy_module("lance_io.store.s3.bucket")

DATABASE_ENDPOINTS = (
    "dynamodb_endpoint",
    "dynamodb_endpoint_url",
    "aws_endpoint_url_dynamodb",
    "endpoint_url_dynamodb",
)

SCHEME: Final = "s3+ddb"
TABLE_PARAMETER: Final = "ddbTableName"


def uses_database(uri: str | os.PathLike[str]) -> bool:
    """Whether a URI names a table that commits through a database."""
    return uri_text(uri).lower().startswith(f"{SCHEME}://")


def open_location(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    commit_lock: CommitLock | None = None,
) -> tuple[Location, CommitHandler]:
    """The location that a URI names, and its commit handler. Makes no request. Raises the errors of `open_store`."""
    if not uses_database(uri):
        return open_store(uri, storage_options), _handler(commit_lock)
    if commit_lock is not None:
        raise UsageError(f"a table of {SCHEME}:// takes no commit_lock: the database decides")
    return _open_with_database(uri_text(uri), storage_options)


def _handler(commit_lock: CommitLock | None) -> CommitHandler:
    if not commit_lock:
        return PutAbsentHandler()

    return locks.LockHandler(commit_lock)


def _open_with_database(uri: str, storage_options: Mapping[str, str] | None) -> tuple[Location, CommitHandler]:
    rest, _, query = uri[len(SCHEME) + len("://") :].partition("?")
    parameters = parse_qsl(query, keep_blank_values=True)
    if [name for name, _ in parameters] != [TABLE_PARAMETER] or not parameters[0][1]:
        raise UsageError(f"{uri}: expected {SCHEME}://bucket/path?{TABLE_PARAMETER}=table, and no other parameter")
    location = open_store(f"s3://{rest}", storage_options)

    assert isinstance(location.store, s3.S3Store)
    s3_options, options = location.store.options, normalize(storage_options)
    named = [options.get(name) for name in DATABASE_ENDPOINTS]
    endpoint = next(filter(None, named), None) or os.environ.get("DYNAMODB_ENDPOINT") or s3_options.dynamodb_endpoint
    return location, external.ExternalHandler(dynamodb.DynamoManifestStore(parameters[0][1], s3_options, endpoint))
