"""Resolves the URI of a table to its location and commit handler.

    s3+ddb://bucket/path?ddbTableName=table   objects on S3; a table in DynamoDB decides which writer creates a version
    any other URI                             the location to which `resolve_uri` resolves the URI; the store decides by
                                              create-if-absent, or the caller's `commit_lock` decides

The endpoint of DynamoDB is the storage option `dynamodb_endpoint`; without the option, the environment variable
DYNAMODB_ENDPOINT; without both, the variables of AWS's tools (`store/s3/endpoints.py`). Requests to DynamoDB use the
credentials and the region of the S3 bucket.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.store.storage_options import normalize
from lance_io.store.url import resolve_uri, uri_text

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

# Storage options for the endpoint of DynamoDB. The first option that is set takes precedence.
DATABASE_ENDPOINT_OPTIONS = (
    "dynamodb_endpoint",
    "dynamodb_endpoint_url",
    "aws_endpoint_url_dynamodb",
    "endpoint_url_dynamodb",
)

DATABASE_SCHEME: Final = "s3+ddb"
TABLE_NAME_PARAMETER: Final = "ddbTableName"


def uses_database(uri: str | os.PathLike[str]) -> bool:
    """Whether a URI has the scheme of tables whose commits DynamoDB decides."""
    return uri_text(uri).lower().startswith(f"{DATABASE_SCHEME}://")


def open_location(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    commit_lock: CommitLock | None = None,
) -> tuple[Location, CommitHandler]:
    """Resolve the URI of a table to its location and its commit handler. Makes no request.

    commit_lock  lock that decides between concurrent commits; None if the store or the database decides
    Raises the errors of `resolve_uri`, and `UsageError` for a lock beside a database.
    """
    if not uses_database(uri):
        return resolve_uri(uri, storage_options), _handler_without_database(commit_lock)
    if commit_lock is not None:
        raise UsageError(f"a table of {DATABASE_SCHEME}:// takes no commit_lock: the database decides")
    return _open_with_database(uri_text(uri), storage_options)


def _handler_without_database(commit_lock: CommitLock | None) -> CommitHandler:
    if not commit_lock:
        return PutAbsentHandler()
    return locks.LockHandler(commit_lock)


def _open_with_database(uri: str, storage_options: Mapping[str, str] | None) -> tuple[Location, CommitHandler]:
    bucket_and_path, _, query = uri[len(DATABASE_SCHEME) + len("://") :].partition("?")
    parameters = parse_qsl(query, keep_blank_values=True)
    if [name for name, _ in parameters] != [TABLE_NAME_PARAMETER] or not parameters[0][1]:
        expected = f"{DATABASE_SCHEME}://bucket/path?{TABLE_NAME_PARAMETER}=table"
        raise UsageError(f"{uri}: expected {expected}, and no other parameter")
    location = resolve_uri(f"s3://{bucket_and_path}", storage_options)
    assert isinstance(location.store, s3.S3Store), "`resolve_uri` opens every s3:// URI with this class"
    s3_options, options = location.store.options, normalize(storage_options)
    endpoints = [options.get(name) for name in DATABASE_ENDPOINT_OPTIONS]
    option = next(filter(None, endpoints), None)
    endpoint = option or os.environ.get("DYNAMODB_ENDPOINT") or s3_options.dynamodb_endpoint
    return location, external.ExternalHandler(dynamodb.DynamoManifestStore(parameters[0][1], s3_options, endpoint))
