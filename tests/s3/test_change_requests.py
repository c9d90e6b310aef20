"""What changing a table on S3 costs in requests, beside what pylance needs for the same."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.s3.proxy import CountingProxy
    from tests.servers import S3Server

FILES = 4
ROWS = 5_000  # of each
SLACK_BYTES = 1024  # ends of files are read in another length


def part(number: int) -> pa.Table:
    dice = np.random.default_rng(number)
    return pa.table(
        {
            "id": np.arange(ROWS) + number * ROWS,
            "key": [f"key {x:06}" for x in range(number * ROWS, (number + 1) * ROWS)],
            "x": dice.random(ROWS),
            "text": [f"{x:030x}" for x in dice.integers(0, 1 << 60, ROWS).tolist()],
        }
    )


def source(share: int) -> pa.Table:
    """One in `share` of the rows with other values, and as many new ones."""
    ids = np.arange(0, FILES * ROWS * 2, 2 * share)
    return pa.table(
        {
            "id": ids,
            "key": [f"key {x:06}" for x in ids.tolist()],
            "x": np.zeros(len(ids)),
            "text": ["new"] * len(ids),
        }
    )


def merge(table: Any, key: str, share: int) -> None:
    table.merge_insert(key).when_matched_update_all().when_not_matched_insert_all().execute(source(share))


CHANGES: dict[str, tuple[int, Callable[[Any], object]]] = {
    "append": (4, lambda table: table.insert(part(FILES))),
    "delete of 1 %": (15, lambda table: table.delete("id % 100 = 7")),
    "delete of a file's rows": (11, lambda table: table.delete(f"id < {ROWS}")),
    "update of 1 %": (12, lambda table: table.update({"x": "x + 1"}, where="id % 100 = 7")),
    "update of one row": (13, lambda table: table.update({"x": "0.5"}, where="id = 77")),
    "merge of 1 % by int": (16, partial(merge, key="id", share=100)),
    "merge of 10 % by int": (16, partial(merge, key="id", share=10)),
    "merge of 1 % by text": (16, partial(merge, key="key", share=100)),
    "new column by SQL": (15, lambda table: table.add_columns({"y": "x * 2"})),
    "new column of nulls": (3, lambda table: table.add_columns(pa.field("y", pa.int32()))),
    "cast": (15, lambda table: table.alter_columns({"path": "x", "data_type": pa.float32()})),
    "rename": (3, lambda table: table.alter_columns({"path": "x", "name": "y"})),
    "drop": (3, lambda table: table.drop_columns(["x"])),
    "compact": (12, lambda table: table.optimize.compact_files()),
    "restore": (10, lambda table: (table.checkout_version(2), table.restore())[1]),
    "tag": (5, lambda table: table.tags.create("t", 2)),
    "config": (3, lambda table: table.update_config({"a": "b"})),
}


"""Each with the requests that it takes here."""


@pytest.fixture(autouse=True)
def unlimited_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """pylance does not hold itself back."""
    for name, value in {"INITIAL_RATE": "50000", "MAX_RATE": "50000", "BURST_CAPACITY": "5000"}.items():
        monkeypatch.setenv(f"LANCE_AIMD_{name}", value)


@pytest.mark.parametrize("name", CHANGES)
def test_changes_need_no_more_than_the_peers(name: str, s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    num_requests, change = CHANGES[name]
    options, spent, rows = s3.through(proxy.endpoint), [], []
    # Whether the store keeps `If-None-Match` is found out once for all tables of a bucket.
    lance_io.write_dataset(part(0), f"{s3_uri}/first", storage_options=options)
    for library in (lance_io, lance):
        uri = f"{s3_uri}/{library.__name__}"
        for number in range(FILES):
            lance.write_dataset(part(number), uri, mode="append", storage_options=s3.options())
        table = library.dataset(uri, storage_options=options)
        proxy.take()
        change(table)
        spent.append(proxy.take())
        rows.append(lance.dataset(uri, storage_options=s3.options()).to_table().sort_by("id"))
    ours, theirs = spent
    assert rows[0] == rows[1]
    assert ours.requests == num_requests
    pin = sum(".cleanup-" in line for line in ours.lines)  # so that no cleanup removes what is built on; not in pylance
    assert pin == (3 if name in ("restore", "tag") else 0)
    assert ours.requests - pin <= theirs.requests
    assert ours.body_bytes <= theirs.body_bytes + SLACK_BYTES
