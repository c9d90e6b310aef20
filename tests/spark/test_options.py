"""Options: names as Spark hands them over, values checked, what belongs elsewhere refused by name."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.errors import UnsupportedError, UsageError
from lance_io.spark import helpers
from lance_io.spark.options import (
    OPTIONS,
    ReadOptions,
    StreamReadOptions,
    StreamWriteOptions,
    WriteOptions,
    parse_options,
    parse_schema_options,
    parse_write_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = {"path": "/t.lance"}
HALF = "a\ud800b"


@pytest.mark.parametrize("name", ["versionAsOf", "versionasof", "VERSION_AS_OF", "version", "Version"])
def test_names_ignore_case_and_underscores(name: str) -> None:
    assert parse_options({**PATH, name: "3"}, "read").version == 3


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a", (("a",),)),
        ("a, b.c", (("a",), ("b", "c"))),
        ("`a.b`.c,`x``y`", (("a.b", "c"), ("x`y",))),
        ("Ä,` lead`", (("Ä",), (" lead",))),
    ],
)
def test_columns(text: str, paths: tuple[tuple[str, ...], ...]) -> None:
    assert parse_options({**PATH, "columns": text}, "read").columns == paths


@pytest.mark.parametrize("text", ["", "a,", "a..b", "`a", "a b`c`", ",", "``"])
def test_columns_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="columns"):
        parse_options({**PATH, "columns": text}, "read")


@pytest.mark.parametrize(
    ("text", "number"), [("1048576", 1 << 20), ("1m", 1 << 20), ("64 MiB", 64 << 20), ("2G", 2 << 30), ("10kb", 10240)]
)
def test_bytes(text: str, number: int) -> None:
    assert parse_options({**PATH, "split_bytes": text}, "read").split_bytes == number


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("split_bytes", "0"),
        ("split_bytes", "many"),
        ("version", "-1"),
        ("version", "1.5"),
        ("num_partitions", "0"),
        ("num_partitions", "10001"),
        ("with_row_id", "yes please"),
        ("uint64", "string"),
        ("timestampAsOf", "yesterday"),
        ("limit", "٣"),
        ("limit", str(2**63)),
    ],
)
def test_values_that_make_no_sense_name_the_option(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=name):
        parse_options({**PATH, name: text}, "read")


def test_times_keep_their_zone_or_have_none() -> None:
    with_zone = parse_options({**PATH, "timestampAsOf": "2026-01-31T12:00:00Z"}, "read").timestamp_as_of
    assert with_zone == datetime(2026, 1, 31, 12, tzinfo=UTC)
    plain = parse_options({**PATH, "asoftimestamp": "2026-01-31 12:00:00"}, "read").timestamp_as_of
    assert plain == datetime(2026, 1, 31, 12)


@pytest.mark.parametrize(
    ("given", "meant"), [("colums", "columns"), ("batchbyte", "batch_bytes"), ("versionof", "version")]
)
def test_unknown_options_come_with_a_suggestion(given: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"unknown option '{given}'; did you mean '{meant}"):
        parse_options({**PATH, given: "1"}, "read")


@pytest.mark.parametrize("name", ["overwrite_where", "pushdown", "overwriteWhere"])
@pytest.mark.parametrize("purpose", ["read", "write"])
def test_options_of_a_later_release_are_refused_by_name(name: str, purpose: str) -> None:
    with pytest.raises(UnsupportedError, match="later release"):
        parse_options({**PATH, name: "off"}, purpose)


def test_at_most_one_version() -> None:
    with pytest.raises(UsageError, match="at most one of version"):
        parse_options({**PATH, "version": "1", "tag": "t"}, "read")
    with pytest.raises(UsageError, match="say the same"):
        parse_options({**PATH, "version": "1", "versionasof": "1"}, "read")


def test_a_path_is_needed_and_only_one() -> None:
    with pytest.raises(UsageError, match=r"option path is missing.*CREATE TEMP VIEW"):
        parse_options({"owner": "me", "provider": "lance_io"}, "read")
    with pytest.raises(UsageError, match="one table"):
        parse_options({"paths": '["a","b"]'}, "read")


def test_keys_that_spark_adds_are_let_through() -> None:
    added = {"owner": "o", "provider": "p", "location": "l", "queryname": "q", "checkpointlocation": "c"}
    assert parse_options({**PATH, **added}, "read") == ReadOptions("/t.lance")


def test_a_write_ignores_read_options_but_for_versions() -> None:
    assert parse_options({**PATH, "columns": "a", "batchbytes": "1m"}, "write") == WriteOptions("/t.lance")
    for name, text in (("version", "1"), ("timestampasof", "2026-01-01"), ("tag", "t")):
        with pytest.raises(UsageError, match="past version cannot be written"):
            parse_options({**PATH, name: text}, "write")


def test_a_read_refuses_write_options() -> None:
    with pytest.raises(UsageError, match="mergeSchema belongs to a write"):
        parse_options({**PATH, "mergeschema": "true"}, "read")
    with pytest.raises(UsageError, match="starting_version belongs to a streaming read"):
        parse_options({**PATH, "starting_version": "1"}, "read")
    with pytest.raises(UsageError, match="say where the stream begins"):
        parse_options({**PATH, "version": "1"}, "stream_read")


def test_families_keep_their_names() -> None:
    options = parse_options(
        {**PATH, "storage.a_b": "1", "properties.who_am_i": "x", "my_vec.arrow.fixed-size-list.size": "8"}, "write"
    )
    assert options.storage == {"a_b": "1"}
    assert options.properties == {"who_am_i": "x"}
    assert options.vector_sizes == {"my_vec": 8}


def test_a_streaming_write_needs_a_stream_id() -> None:
    with pytest.raises(UsageError, match="stream_id is missing"):
        parse_options(PATH, "stream_write")
    options = parse_options({**PATH, "txnAppId": "s", "checkpointlocation": "/c"}, "stream_write")
    assert isinstance(options, StreamWriteOptions)
    assert (options.stream_id, options.checkpoint_location) == ("s", "/c")


def test_the_schema_of_a_stream_knows_its_options() -> None:
    assert isinstance(parse_schema_options({**PATH, "starting_version": "1"}), StreamReadOptions)
    assert type(parse_schema_options(PATH)) is ReadOptions


def test_credentials_do_not_show() -> None:
    options = parse_options({**PATH, "storage.aws_secret_access_key": "hush", "io_concurrency": "4"}, "read")
    assert "hush" not in repr(options) and "hush" not in str(options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.storage_options == {"aws_secret_access_key": "hush", "requests_max": "4"}


@pytest.mark.parametrize(
    "name", [*OPTIONS, "storage.aws_secret_access_key", "properties.x", "v.arrow.fixed-size-list.size", "owner"]
)
def test_half_of_a_surrogate_pair_is_refused_by_name(name: str) -> None:
    purpose: Any = OPTIONS[name].purposes[0] if name in OPTIONS else "write"
    with pytest.raises(UsageError) as caught:
        parse_options({**PATH, name: HALF}, purpose)
    told = f"option {name}: expected Unicode text, found half of a surrogate pair, U+D800, at character 1: "
    assert told in str(caught.value).encode().decode()


@pytest.mark.parametrize("key", [HALF, f"storage.{HALF}", f"properties.{HALF}", f"{HALF}.arrow.fixed-size-list.size"])
@pytest.mark.parametrize("parse", [parse_schema_options, parse_write_options])
def test_half_of_a_surrogate_pair_in_a_name_is_refused(key: str, parse: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"the name of an option: .* half of a surrogate pair, U\+D800") as caught:
        parse({**PATH, key: "3"})
    assert str(caught.value).encode()


@pytest.mark.parametrize(
    "call",
    [
        lambda: helpers.read_table(None, "/t.lance", filter=HALF),
        lambda: helpers.read_table(None, "/t.lance", storage={"aws_region": HALF}),
        lambda: helpers.read_table(None, HALF),
        lambda: helpers.write_table(None, "/t.lance", properties={HALF: "x"}),
        lambda: helpers.plan("/t.lance", columns=[("a", HALF)]),
        lambda: helpers.count(HALF),
    ],
)
def test_half_of_a_surrogate_pair_never_reaches_spark(call: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match="half of a surrogate pair") as caught:
        call()
    assert str(caught.value).encode()
