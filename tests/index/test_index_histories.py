"""Property: after any steps of both libraries, each filter gives by its indices the rows of a scan.

`LANCE_IO_INDEX_FILTERS` is the number of filters (250 here, 20,000 in a campaign). Steps append, delete, update, merge,
compact (at once and deferred), build, replace and drop indices, and bring them up to date.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import lance
import lance.indices
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_io
import lance_io.indices
from tests.index.test_index_property import filters, make_rows
from tests.seeds import seeded

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FILTERS = int(os.environ.get("LANCE_IO_INDEX_FILTERS", "250"))
FILTERS_PER_STEP = 10
STEPS = 10
KINDS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "i": [("BTREE", {"zone_size": 64}), ("BITMAP", {}), ("ZONEMAP", {"rows_per_zone": 50})],
    "c": [("BITMAP", {}), ("BTREE", {}), ("BLOOMFILTER", {"number_of_items": 40, "probability": 0.05})],
    "f": [("ZONEMAP", {"rows_per_zone": 50}), ("BTREE", {"zone_size": 32})],
    "g": [("BLOOMFILTER", {"number_of_items": 60, "probability": 0.05}), ("BITMAP", {})],
    "s": [("BTREE", {"zone_size": 64}), ("ZONEMAP", {"rows_per_zone": 30}), ("BITMAP", {})],
    "l": [("LABEL_LIST", {})],
    "t": [("NGRAM", {}), ("BTREE", {})],
}
VALUES = {"i": "7", "c": "2", "f": "1.5", "g": "3", "s": "'a3'", "l": "['t1']", "t": "'some word 1 here'"}


def numbered(num_rows: int, seed: int) -> pa.Table:
    """Rows with a key."""
    return make_rows(num_rows, seed).append_column("key", pa.array(np.arange(num_rows) + 1000 * seed))


class History:
    """A table under change; each step is one library's."""

    def __init__(self, uri: str, stable: bool) -> None:
        self.uri, self.stable, self.num_appends = uri, stable, 0
        lance.write_dataset(numbered(260, 0), uri, max_rows_per_file=80, enable_stable_row_ids=stable)

    def append(self, library: ModuleType, dice: np.random.Generator) -> None:
        self.num_appends += 1
        library.write_dataset(numbered(int(dice.integers(1, 90)), self.num_appends), self.uri, mode="append")

    def delete(self, library: ModuleType, dice: np.random.Generator) -> None:
        library.dataset(self.uri).delete(dice.choice(["u = 3", "i < 6", "key % 9 = 2", "c = 1 OR s IS NULL"]))

    def update(self, library: ModuleType, dice: np.random.Generator) -> None:
        column = str(dice.choice([*VALUES]))
        library.dataset(self.uri).update({column: VALUES[column]}, where=f"key % 10 = {dice.integers(10)}")

    def merge(self, library: ModuleType, dice: np.random.Generator) -> None:
        """Rows of present and of new keys."""
        self.num_appends += 1
        new = numbered(30, self.num_appends)
        present = lance.dataset(self.uri).to_table(columns=["key"])["key"].to_numpy()
        some = np.unique(dice.choice(present, 12)) if len(present) else present
        keys = np.concatenate((some, new["key"].to_numpy()))[: len(new)]
        rows = new.set_column(new.schema.get_field_index("key"), "key", pa.array(keys))
        merge = library.dataset(self.uri).merge_insert("key")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def patch(self, library: ModuleType, dice: np.random.Generator) -> None:
        """New values of two columns of present rows."""
        present = lance.dataset(self.uri).to_table(columns=["key"])["key"].to_numpy()
        if len(present):
            keys = np.unique(dice.choice(present, 9))
            rows = pa.table({"key": keys, "c": dice.integers(0, 6, len(keys)), "s": ["b13"] * len(keys)})
            library.dataset(self.uri).merge_insert("key").when_matched_update_all().execute(rows)

    def compact(self, library: ModuleType, dice: np.random.Generator) -> None:
        options = {} if self.stable or dice.random() < 0.5 else {"defer_index_remap": True}
        rows = int(dice.choice([150, 1000]))
        library.dataset(self.uri).optimize.compact_files(
            target_rows_per_fragment=rows, materialize_deletions_threshold=0.05, **options
        )

    def build(self, library: ModuleType, dice: np.random.Generator) -> None:
        column = str(dice.choice([*KINDS]))
        kind, parameters = KINDS[column][int(dice.integers(len(KINDS[column])))]
        config = library.indices.IndexConfig(kind.lower(), parameters) if parameters else kind
        name = f"{column}_{kind}" if dice.random() < 0.5 else f"{column}_idx"
        library.dataset(self.uri).create_scalar_index(column, config, name=name, replace=True)

    def optimize(self, library: ModuleType, dice: np.random.Generator) -> None:
        library.dataset(self.uri).optimize.optimize_indices(num_indices_to_merge=int(dice.choice([0, 0, 1, 10])))

    def drop(self, library: ModuleType, dice: np.random.Generator) -> None:
        names = [index.name for index in lance_io.dataset(self.uri).describe_indices()]
        names = [name for name in names if not name.startswith("__")]
        if len(names) > 3:
            library.dataset(self.uri).drop_index(str(dice.choice(names)))

    @property
    def steps(self) -> dict[str, Callable[[ModuleType, np.random.Generator], None]]:
        names = ("append", "delete", "update", "merge", "patch", "compact", "build", "optimize", "drop")
        return {name: getattr(self, name) for name in names}


STEP_NAMES = [
    "append",
    "delete",
    "update",
    "merge",
    "patch",
    "compact",
    "compact",
    "build",
    "build",
    "optimize",
    "drop",
]
drawn_steps = st.lists(
    st.tuples(st.sampled_from(STEP_NAMES), st.booleans(), st.integers(0, 1 << 30)), min_size=3, max_size=STEPS
)


@seeded
@settings(
    max_examples=max(1, FILTERS // (FILTERS_PER_STEP * STEPS // 2)),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(stable=st.booleans(), steps=drawn_steps, first=st.integers(0, 1 << 30), data=st.data())
def test_answers_equal_scans_after_any_history(
    stable: bool, steps: list[tuple[str, bool, int]], first: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(f"{folder}/t", stable)
        for number in range(4):
            history.build(lance if number % 2 else lance_io, np.random.default_rng(first + number))
        for name, is_ours, seed in steps:
            history.steps[name](lance_io if is_ours else lance, np.random.default_rng(seed))
            table = lance_io.dataset(history.uri)
            for _ in range(FILTERS_PER_STEP):
                text = data.draw(filters)
                options = {"filter": text, "with_row_address": True}
                scan = table.to_table(["key"], **options, use_scalar_index=False)
                assert table.to_table(["key"], **options) == scan, text
            assert table.count_rows(text) == scan.num_rows, text
