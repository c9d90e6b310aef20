"""What a URI names: pylance writes to the same place, and what names no place is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import UsageError
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from pathlib import Path

PLACES = [
    "a b",
    "a%20b",
    "a#b",
    "a?b",
    "a?b#c",
    "a%25b",
    "a%2520b",
    "a%zz%4",
    "a%2Fb",
    "./a",
    "../a",
    "a/../b",
    "a/./b",
    "a%2e%2e/b",
    "%2E/b",
    ".%2E/b",
    ".../a",
    "a\tb",
    "%E2%82%AC",
    "日本+~'{}|^`<>",
    "a\\b",
]
NOWHERE = ["a//b", "a%00b", "a%0Ab", "a%C3%28b", "a%2F..%2Fb", "a%2F%2Fb"]
TABLE = pa.table({"a": [1, 2]})


@pytest.mark.parametrize("place", PLACES)
def test_files_lie_where_pylance_puts_them(place: str, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/0/1/{place}/t.lance"
    lance.write_dataset(TABLE, uri)
    (found,) = tmp_path.rglob("_versions")
    assert resolve_uri(uri).path == str(found.parent)
    assert lance_io.dataset(uri).to_table() == TABLE


@pytest.mark.parametrize("place", PLACES)
def test_objects_lie_where_pylance_puts_them(place: str, s3, s3_uri: str) -> None:
    uri, options = f"{s3_uri}/1/1/{place}/t.lance", s3.options()
    lance.write_dataset(TABLE, uri, storage_options=options)
    assert lance_io.dataset(uri, storage_options=options).to_table() == TABLE
    ours = f"{s3_uri}/2/2/{place}/t.lance"
    lance_io.write_dataset(TABLE, ours, storage_options=options)
    assert lance.dataset(ours, storage_options=options).to_table() == TABLE


@pytest.mark.parametrize("place", NOWHERE)
def test_places_that_pylance_refuses_are_refused(place: str, s3, s3_uri: str) -> None:
    uri, options = f"{s3_uri}/{place}/t.lance", s3.options()
    with pytest.raises((ValueError, OSError)):
        lance.write_dataset(TABLE, uri, storage_options=options)
    with pytest.raises(UsageError, match="expected"):
        lance_io.write_dataset(TABLE, uri, storage_options=options)


def test_the_bucket_alone_and_slashes_at_the_end() -> None:
    for uri, path in (("s3://b", ""), ("s3://b/", ""), ("s3://b/a/", "a"), ("s3://b/a/..", ""), ("s3://b?x/y", "")):
        assert resolve_uri(uri, {"region": "us-east-1"}).path == path


@pytest.mark.parametrize(
    "uri",
    [
        "s3://user:secret@bucket/t",
        "s3://bucket:secret/t",
        "gs://user:secret@bucket/t",
        "az://user:secret@account/t",
        "memory://user:secret@x/t",
        "shared-memory://user:secret@x/t",
    ],
)
def test_a_password_in_the_uri_is_refused_and_not_shown(uri: str) -> None:
    with pytest.raises(UsageError, match="storage_options") as caught:
        resolve_uri(uri)
    assert "secret" not in str(caught.value)
