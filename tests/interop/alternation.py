"""A table that both libraries change in turn, beside a model of it in plain Python.

The model is a list of versions of each branch, each with its rows by key. Steps are made on one branch until another is
chosen, or on a clone, once there is one. After every step both libraries open the table anew: they must agree with the
model about rows, columns, metadata of all kinds, tags and indices, and what indices of pylance find; and with each
other about everything that only they know: the order of rows, row ids, field ids, base paths.

The files of the table are of any version that both write. Rows hold only what files of that version can: no null
structs in 2.0, no nulls but those of strings in 0.1, where an append has every column and no column may be all null.

`Alternation` is a Hypothesis state machine; who runs it says where the table lies, see `run`.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import lance_io
from lance_io.errors import CommitConflictError, OperationError, SchemaError
from tests.interop.comparing import LIBRARIES, assert_same
from tests.seeds import seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

STEPS = int(os.environ.get("LANCE_IO_STATEFUL_STEPS", "0"))
FIRST_COLUMNS = {
    "key": pa.int64(),
    "a": pa.int32(),
    "s": pa.string(),
    "n": pa.struct([("p", pa.int16()), ("q", pa.large_string())]),
    "l": pa.list_(pa.int32()),
    "v": pa.list_(pa.float32(), 2),
}
PICK = st.integers(0, 1 << 30)
LIBRARY = st.sampled_from(LIBRARIES)
BY_ROW_ID = ("BITMAP", "NGRAM", "INVERTED", "LABEL_LIST", "IVF_FLAT")  # indices that hold stable row ids
FILE_VERSIONS = ("0.1", "2.0", "2.1", "2.2")


# -- the model -------------------------------------------------------------------------------------------------------


@dataclass
class Version:
    """What one version of the table holds: rows by key, each a dictionary of the columns.

    field_metadata  by column
    indices         by name: column and kind
    """

    file_version: str = "2.2"
    columns: dict[str, pa.DataType] = field(default_factory=lambda: dict(FIRST_COLUMNS))
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    schema_metadata: dict[str, str] = field(default_factory=dict)
    field_metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    indices: dict[str, tuple[str, str]] = field(default_factory=dict)

    def expected(self) -> pa.Table:
        """All rows in the order of their keys."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        return pa.Table.from_pylist(rows, schema=pa.schema(list(self.columns.items())))

    def indexed(self) -> set[str]:
        """Columns that have an index."""
        return {column for column, _ in self.indices.values()}

    def rename(self, old: str, new: str) -> None:
        """Give a column another name; its metadata and indices stay."""
        self.columns = {new if name == old else name: dtype for name, dtype in self.columns.items()}
        self.rows = {
            key: {new if name == old else name: value for name, value in row.items()} for key, row in self.rows.items()
        }
        if old in self.field_metadata:
            self.field_metadata[new] = self.field_metadata.pop(old)
        self.indices = {name: (new if column == old else column, kind) for name, (column, kind) in self.indices.items()}

    def drop(self, column: str) -> None:
        """Take a column out, with its metadata and indices."""
        del self.columns[column]
        for row in self.rows.values():
            del row[column]
        self.field_metadata.pop(column, None)
        self.indices = {name: (of, kind) for name, (of, kind) in self.indices.items() if of != column}

    def make_row(self, columns: Iterable[str], key: int, dice: random.Random) -> dict[str, Any]:
        """A new row with values for some columns, nulls for the others."""
        given = set(columns)
        return {
            name: key if name == "key" else _value(dtype, dice, self.may_be_null) if name in given else None
            for name, dtype in self.columns.items()
        }

    def may_be_null(self, dtype: pa.DataType) -> bool:
        """Whether files hold nulls of a type."""
        if self.file_version == "0.1":
            return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))
        return not (self.file_version == "2.0" and pa.types.is_struct(dtype))

    def may_be_absent(self, name: str) -> bool:
        """Whether rows may come without a column."""
        return name != "key" and self.file_version != "0.1" and self.may_be_null(self.columns[name])


def _value(dtype: pa.DataType, dice: random.Random, may_be_null: Callable[[pa.DataType], bool]) -> Any:
    if dice.random() < 0.2 and may_be_null(dtype):
        return None
    if pa.types.is_struct(dtype):
        return {one.name: _value(one.type, dice, may_be_null) for one in dtype}
    if pa.types.is_fixed_size_list(dtype):
        return [float(dice.randrange(9)) for _ in range(dtype.list_size)]
    if pa.types.is_list(dtype):
        return [_value(dtype.value_type, dice, may_be_null) for _ in range(dice.randrange(4))]
    if pa.types.is_integer(dtype):
        return dice.randrange(50)
    return f"w{dice.randrange(6)}"


@dataclass
class Branch:
    """A line of versions. parent: the version that it began with, by branch (None: the main one) and number."""

    parent: tuple[str | None, int] | None = None
    versions: dict[int, Version] = field(default_factory=dict)
    current: Version = field(default_factory=Version)
    stale: list[tuple[int, Any]] = field(default_factory=list)
    row_ids: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Predicate:
    """A filter as text, and as a function of a row."""

    text: str
    holds: Callable[[dict[str, Any]], bool]


def predicates(version: Version, dice: random.Random) -> Predicate:
    """A filter of columns that are there."""
    number, modulus = dice.randrange(200), dice.choice((2, 3, 7, 11))
    choices = [
        Predicate(f"key % {modulus} = 0", lambda row: row["key"] % modulus == 0),
        Predicate(f"key < {number}", lambda row: row["key"] < number),
        Predicate(f"key = {number}", lambda row: row["key"] == number),
        Predicate(f"key between {number} and {number + 9}", lambda row: number <= row["key"] <= number + 9),
    ]
    if version.columns.get("s") == pa.string():
        choices.append(Predicate("s in ('w1', 'w2')", lambda row: row["s"] in ("w1", "w2")))
        if version.file_version != "0.1":  # where pylance answers it by statistics, which do not know these nulls
            choices.append(Predicate("s is null", lambda row: row["s"] is None))
    if "n" in version.columns:
        choices.append(Predicate("n.p > 40", lambda row: ((row["n"] or {}).get("p") or 0) > 40))
    return dice.choice(choices)


# -- the machine -----------------------------------------------------------------------------------------------------


class Alternation(RuleBasedStateMachine):
    """One table, two libraries. Subclasses place it by `place` and `options`."""

    file_versions: Sequence[str] = FILE_VERSIONS
    storage_options: Mapping[str, str] | None = None

    def place(self) -> str:
        """A folder or prefix that is not there yet."""
        self.folder = tempfile.mkdtemp()
        return f"{self.folder}/table"

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @initialize(library=LIBRARY, seed=PICK, stable=st.booleans(), file_version=PICK)
    def create(self, library: Any, seed: int, stable: bool, file_version: int) -> None:
        self.uri = self.place()
        self.next_key = 0
        self.origins: list[tuple[str, str | None, int, pa.Table]] = []
        self.bases: list[str] = []
        self.stable = stable
        self.name: str | None = None
        self.branches: dict[str | None, Branch] = {None: Branch()}
        self.tags: dict[str, tuple[str | None, int]] = {}
        self.current = Version(self.file_versions[file_version % len(self.file_versions)])
        rows = self.new_rows(seed, list(FIRST_COLUMNS))
        self.write(
            library,
            rows,
            "create",
            seed,
            enable_stable_row_ids=stable,
            data_storage_version=self.current.file_version,
            enable_v2_manifest_paths=seed % 3 > 0,
        )
        self.commit_model()

    # what rules use

    @property
    def branch(self) -> Branch:
        """The branch that steps are made on."""
        return self.branches[self.name]

    @property
    def versions(self) -> dict[int, Version]:
        """Its versions by number."""
        return self.branch.versions

    @property
    def current(self) -> Version:
        """Its newest version, or what that is going to be."""
        return self.branch.current

    @current.setter
    def current(self, version: Version) -> None:
        self.branch.current = version

    def open(self, library: Any, version: int | str | None = None) -> Any:
        """The newest version of the branch, or another one, or that of a tag, opened anew."""
        options = self.storage_options and dict(self.storage_options)
        if self.name is None or isinstance(version, str):
            return library.dataset(self.uri, version=version, storage_options=options)
        return library.dataset(self.uri, storage_options=options).checkout_version((self.name, version))

    def new_rows(self, seed: int, columns: list[str]) -> list[dict[str, Any]]:
        """Between none and thirty rows with new keys."""
        dice = random.Random(seed)
        count = dice.choice((0, 1, 5, 30))
        keys = range(self.next_key, self.next_key + count)
        self.next_key += count
        return [self.current.make_row(columns, key, dice) for key in keys]

    def write(self, library: Any, rows: list[dict[str, Any]], mode: str, seed: int, **options: Any) -> None:
        """Write rows; those of the model follow."""
        dice = random.Random(seed + 1)
        names = options.pop("columns", list(self.current.columns))
        schema = pa.schema([(name, self.current.columns[name]) for name in names])
        data = pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schema=schema)
        if dice.random() < 0.5 and len(data):
            cut = dice.randrange(len(data))
            data = pa.concat_tables([data.slice(0, cut), data.slice(cut)])
        if self.bases and dice.random() < 0.5:
            bases = [base.name for base in self.open(lance_io).base_paths().values() if base.name in self.bases]
            if bases:
                options["target_bases"] = [dice.choice(bases)]
        library.write_dataset(
            data,
            self.uri if self.name is None else self.open(library),
            mode=mode,
            max_rows_per_file=dice.choice((4, 13, 1000)),
            storage_options=self.storage_options and dict(self.storage_options),
            **options,
        )
        self.current.rows.update({row["key"]: row for row in rows})

    def commit_model(self) -> None:
        """What is current becomes the content of the newest version."""
        self.versions[self.open(lance_io).version] = copy.deepcopy(self.current)

    def touch(self, holds: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        return [row for row in self.current.rows.values() if holds(row)]

    # rows

    @rule(library=LIBRARY, seed=PICK)
    def append(self, library: Any, seed: int) -> None:
        dice = random.Random(seed)
        others = [name for name in self.current.columns if self.current.may_be_absent(name)]
        columns = [name for name in self.current.columns if name not in others]
        columns += dice.sample(others, dice.randint(0, len(others)))
        dice.shuffle(columns)
        self.write(library, self.new_rows(seed, columns), "append", seed, columns=columns)
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK)
    def overwrite(self, library: Any, seed: int) -> None:
        kept = self.current
        self.current = Version(kept.file_version, config=kept.config, metadata=kept.metadata)
        self.write(library, self.new_rows(seed, list(FIRST_COLUMNS)), "overwrite", seed)
        self.branch.row_ids.clear()
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK)
    def delete(self, library: Any, seed: int) -> None:
        predicate = predicates(self.current, random.Random(seed))
        gone = self.touch(predicate.holds)
        found = self.open(library).delete(predicate.text)
        assert found["num_deleted_rows"] == len(gone)
        for row in gone:
            del self.current.rows[row["key"]]
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK)
    def update(self, library: Any, seed: int) -> None:
        names = [name for name, kind in self.current.columns.items() if name != "key" and pa.types.is_integer(kind)]
        if not names:
            return
        dice = random.Random(seed)
        name, predicate, value = dice.choice(names), predicates(self.current, dice), dice.randrange(100)
        self.open(library).update({name: str(value)}, where=predicate.text)
        for row in self.touch(predicate.holds):
            row[name] = value
        self.commit_model()

    def merge_rows(self, seed: int, names: list[str]) -> list[dict[str, Any]]:
        """Up to four rows with keys that are there, and new ones."""
        dice = random.Random(seed)
        known = dice.sample(sorted(self.current.rows), min(4, len(self.current.rows)))
        return [self.current.make_row(names, key, dice) for key in known] + self.new_rows(seed, names)

    def source(self, rows: list[dict[str, Any]], names: list[str]) -> pa.Table:
        """Some columns of rows."""
        schema = pa.schema([(name, self.current.columns[name]) for name in names])
        return pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schema=schema)

    @rule(library=LIBRARY, seed=PICK)
    def merge_insert(self, library: Any, seed: int) -> None:
        names = list(self.current.columns)
        rows = self.merge_rows(seed, names)
        merge = self.open(library).merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
        if rows:
            merge.execute(self.source(rows, names))
        self.current.rows.update({row["key"]: row for row in rows})
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK, mode=st.sampled_from(["auto", "rewrite_rows", "rewrite_columns"]))
    def merge_some_columns(self, library: Any, seed: int, mode: str) -> None:
        """Rows that are there get other values of some columns."""
        others = [name for name in self.current.columns if name != "key"]
        if len(others) < 2:
            return
        if library is lance and self.current.file_version == "0.1":  # may leave files that nobody can read
            mode = "rewrite_rows"
        names = ["key", *random.Random(seed).sample(others, len(others) // 2)]
        rows = self.merge_rows(seed, names)
        if not rows:
            return
        merge = self.open(library).merge_insert("key").when_matched_update_all().write_mode(mode)
        try:
            merge.execute(self.source(rows, names))
        except OperationError as error:  # ours: pylance leaves a file of which wrong values may be read
            assert self.current.file_version == "0.1" and "without their first column" in str(error), error
            return
        for row in rows:
            if row["key"] in self.current.rows:
                self.current.rows[row["key"]].update({name: row[name] for name in names})
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK, matched=st.sampled_from(["delete", "update some", "nothing"]))
    def merge_and_delete(self, library: Any, seed: int, matched: str) -> None:
        """Rows that match go or, some of them, are written anew; of the others those below a key go."""
        names, low = list(self.current.columns), random.Random(seed).randrange(60)
        rows = self.merge_rows(seed, names)
        if not rows:
            return
        if matched == "delete":  # which pylance's own plan fails at, for some tables
            library = lance_io
        merge = self.open(library).merge_insert("key").when_not_matched_by_source_delete(f"key < {low}")
        if matched == "delete":
            merge = merge.when_matched_delete()
        elif matched == "update some":
            merge = merge.when_matched_update_all("target.key % 2 = 0")
        done = merge.execute(self.source(rows, names))
        given, known = {row["key"]: row for row in rows}, self.current.rows
        gone = {key for key in known if (matched == "delete" if key in given else key < low)}
        assert done["num_deleted_rows"] == len(gone)
        self.current.rows = {
            key: given[key] if matched == "update some" and key in given and key % 2 == 0 else row
            for key, row in known.items()
            if key not in gone
        }
        self.commit_model()

    @rule(library=LIBRARY)
    def truncate(self, library: Any) -> None:
        self.open(library).truncate_table()
        self.current.rows.clear()
        self.commit_model()

    @rule(library=LIBRARY, rows=st.sampled_from([10, 1000]), mode=st.sampled_from(["reencode", "try_binary_copy"]))
    def compact(self, library: Any, rows: int, mode: str) -> None:
        options = {"target_rows_per_fragment": rows, "materialize_deletions_threshold": 0.0, "compaction_mode": mode}
        try:
            self.open(library).optimize.compact_files(**options)
        except OSError as error:  # pylance copies no pages of ours, whose buffers are in another order
            assert library is lance and mode == "try_binary_copy" and "must be sorted by start" in str(error), error
        self.commit_model()

    # columns

    @rule(library=LIBRARY, seed=PICK, how=st.sampled_from(["nothing", "sql", "function", "rows", "join"]))
    def add_column(self, library: Any, seed: int, how: str) -> None:
        name = next(name for name in (f"x{i}" for i in range(99)) if name not in self.current.columns)
        if self.current.file_version == "0.1" and how in ("nothing", "join"):  # which give nulls, or may
            how = "sql"
        if how == "function" and not self.current.rows:  # of which pylance wants one for a sample
            library = lance_io
        table, keys = self.open(library), [*self.current.rows]
        if how in ("rows", "join") and not keys:
            return
        values = {key: None if how == "nothing" else key * 2 for key in keys}
        if how == "nothing":
            table.add_columns(pa.field(name, pa.int64()))
        elif how == "sql":
            table.add_columns({name: "key * 2"})
        elif how == "function":
            table.add_columns(lambda rows: pa.record_batch({name: pc.multiply(rows["key"], 2)}), read_columns=["key"])
        elif how == "rows":
            table.add_columns(pa.table({name: pc.multiply(table.to_table(["key"])["key"], 2)}))
        else:
            known = sorted(random.Random(seed).sample(keys, -(-len(keys) // 2)))
            table.merge(pa.table({"k": known, name: [values[key] for key in known]}), "key", "k")
            values = {key: values[key] if key in known else None for key in keys}
        self.current.columns[name] = pa.int64()
        for key, row in self.current.rows.items():
            row[name] = values[key]
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK)
    def cast_column(self, library: Any, seed: int) -> None:
        names = [name for name, kind in self.current.columns.items() if name != "key" and pa.types.is_integer(kind)]
        if not names:
            return
        name = random.Random(seed).choice(names)
        if name in self.current.indexed():
            before = self.open(lance_io).version
            with pytest.raises(OSError, match=r"drop_index\(\)"):
                self.open(library).alter_columns({"path": name, "data_type": pa.int8()})
            assert self.open(lance_io).version == before
            return
        self.open(library).alter_columns({"path": name, "data_type": pa.int64()})
        if library is lance or self.current.columns[name] != pa.int64():  # ours leaves a column of that type alone
            self.current.field_metadata.pop(name, None)
        self.current.columns[name] = pa.int64()
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK)
    def drop_column(self, library: Any, seed: int) -> None:
        names = [name for name in self.current.columns if name != "key"]
        if not names:
            return
        name = random.Random(seed).choice(names)
        self.open(library).drop_columns([name])
        self.current.drop(name)
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK)
    def rename_column(self, library: Any, seed: int) -> None:
        names = [name for name in self.current.columns if name != "key"]
        if not names:
            return
        old = random.Random(seed).choice(names)
        new = next(name for name in (f"y{i}" for i in range(99)) if name not in self.current.columns)
        self.open(library).alter_columns({"path": old, "name": new})
        self.current.rename(old, new)
        self.commit_model()

    # versions

    @rule(library=LIBRARY, seed=PICK)
    def restore(self, library: Any, seed: int) -> None:
        version = random.Random(seed).choice(sorted(self.versions))
        self.open(library, version).restore()
        self.current = copy.deepcopy(self.versions[version])
        self.branch.row_ids.clear()
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK)
    def tag(self, library: Any, seed: int) -> None:
        dice = random.Random(seed)
        name, version = dice.choice(("one", "two")), dice.choice(sorted(self.versions))
        tags = self.open(library).tags
        if name not in self.tags:
            tags.create(name, (self.name, version))
        elif dice.random() < 0.5:
            tags.update(name, (self.name, version))
        else:
            tags.delete(name)
            del self.tags[name]
            return
        self.tags[name] = (self.name, version)

    # branches

    @rule(library=LIBRARY, seed=PICK)
    def create_branch(self, library: Any, seed: int) -> None:
        """A branch that leaves some version of this one; steps go on there."""
        name = next((name for name in ("side", "side/deep") if name not in self.branches), None)
        if name is None:
            return
        version = random.Random(seed).choice(sorted(self.versions))
        self.open(library).create_branch(name, (self.name, version))
        content = self.versions[version]
        self.branches[name] = Branch((self.name, version), {version: copy.deepcopy(content)}, copy.deepcopy(content))
        self.name = name

    @precondition(lambda self: len(self.branches) > 1)
    @rule(seed=PICK)
    def choose_branch(self, seed: int) -> None:
        self.name = random.Random(seed).choice([name for name in self.branches if name != self.name])

    @precondition(lambda self: len(self.branches) > 1)
    @rule(library=LIBRARY)
    def delete_branch(self, library: Any) -> None:
        """One that nothing refers to."""
        used = {self.name, None, *(branch for branch, _ in self.tags.values())}
        used |= {one.parent[0] for one in self.branches.values() if one.parent is not None}
        for name in sorted(name for name in self.branches if name is not None and name not in used):
            self.open(library).branches.delete(name)
            del self.branches[name]

    @rule(library=LIBRARY)
    def keep_a_handle(self, library: Any) -> None:
        table = self.open(library)
        self.branch.stale = [*self.branch.stale[-2:], (table.version, table)]

    @rule(library=LIBRARY, keep=st.integers(1, 4))
    def clean(self, library: Any, keep: int) -> None:
        """The last versions stay, and what has a tag."""
        table = self.open(library)
        there = sorted(each["version"] for each in table.versions())
        table.cleanup_old_versions(timedelta(0), keep, error_if_tagged_old_versions=False)
        wanted = {*there[-keep:], *(version for branch, version in self.tags.values() if branch == self.name)}
        parents = {one.parent[1] for one in self.branches.values() if one.parent and one.parent[0] == self.name}
        kept, seen = ({each["version"] for each in self.open(one).versions()} for one in LIBRARIES)
        assert kept == seen
        assert wanted <= kept <= wanted | parents
        self.branch.versions = {version: content for version, content in self.versions.items() if version in kept}

    def append_over_a_gap(self, table: Any, seed: int) -> None:
        """By a handle of ours whose version was cleaned up: it fits, or nothing is changed. pylance does not look."""
        if not _is_ours(table):
            return
        names = [name for name in self.current.columns if not self.current.may_be_absent(name)]
        before, rows = self.open(lance_io).version, self.new_rows(seed, names)
        schema = pa.schema([(name, self.current.columns[name]) for name in names])
        try:
            table.insert(pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schema=schema))
        except (CommitConflictError, SchemaError):  # columns may be gone, too
            assert self.open(lance_io).version == before
            return
        self.current.rows.update({row["key"]: row for row in rows})
        self.commit_model()

    @precondition(lambda self: self.branch.stale)
    @rule(seed=PICK)
    def use_a_stale_handle(self, seed: int) -> None:
        """Versions that others made since do not matter, or stop it; then nothing is changed."""
        version, table = self.branch.stale.pop(random.Random(seed).randrange(len(self.branch.stale)))
        if version not in self.versions:
            self.append_over_a_gap(table, seed)
            return
        assert_same(sorted_rows(table), self.versions[version].expected(), "stale")
        before = self.open(lance_io).version
        if version == before:
            return
        predicate = predicates(Version(columns={"key": pa.int64()}), random.Random(seed))
        try:
            table.delete(predicate.text)
        except OSError as error:
            assert "conflict" in str(error) or "incompatible" in str(error) or "preempted" in str(error), error
            assert self.open(lance_io).version == before
            return
        # deleted of what the handle saw, or, made again, of what there is now
        deleted = set(self.current.rows) - set(sorted_rows(self.open(lance_io))["key"].to_pylist())
        now = {row["key"] for row in self.touch(predicate.holds)}
        assert deleted in (now, {key for key in now if key in self.versions[version].rows})
        for key in deleted:
            del self.current.rows[key]
        self.commit_model()

    # metadata

    @rule(library=LIBRARY, key=st.sampled_from("abc"), value=st.sampled_from(["1", "2", None]))
    def configure(self, library: Any, key: str, value: str | None) -> None:
        self.open(library).update_config({key: value})
        _set(self.current.config, key, value)
        self.commit_model()

    @rule(library=LIBRARY, key=st.sampled_from("abc"), value=st.sampled_from(["1", "2", None]))
    def describe(self, library: Any, key: str, value: str | None) -> None:
        self.open(library).update_metadata({key: value})
        _set(self.current.metadata, key, value)
        self.commit_model()

    @rule(library=LIBRARY, keys=st.sets(st.sampled_from("abc"), min_size=1))
    def delete_config(self, library: Any, keys: set[str]) -> None:
        self.open(library).delete_config_keys(sorted(keys))
        for key in keys:
            self.current.config.pop(key, None)
        self.commit_model()

    @rule(library=LIBRARY, key=st.sampled_from("abc"), what=st.sampled_from(["config", "metadata", "schema_metadata"]))
    def replace_entries(self, library: Any, key: str, what: str) -> None:
        """All entries go, but for one that is set."""
        getattr(self.open(library), f"update_{what}")({key: "3"}, replace=True)
        setattr(self.current, what, {key: "3"})
        self.commit_model()

    @rule(library=LIBRARY, key=st.sampled_from("abc"), value=st.sampled_from(["1", "2", None]))
    def describe_schema(self, library: Any, key: str, value: str | None) -> None:
        self.open(library).update_schema_metadata({key: value})
        _set(self.current.schema_metadata, key, value)
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK, value=st.sampled_from(["1", "2", None]), replace=st.booleans())
    def describe_field(self, library: Any, seed: int, value: str | None, replace: bool) -> None:
        dice = random.Random(seed)
        name, key = dice.choice([*self.current.columns]), dice.choice("abc")
        self.open(library).update_field_metadata({name: {key: value}}, replace=replace)
        entries = self.current.field_metadata.setdefault(name, {})
        if replace:
            entries.clear()
        _set(entries, key, value)
        self.commit_model()

    # indices

    @precondition(lambda self: self.current.indices)
    @rule(library=LIBRARY, seed=PICK)
    def drop_index(self, library: Any, seed: int) -> None:
        name = random.Random(seed).choice([*self.current.indices])
        self.open(library).drop_index(name)
        del self.current.indices[name]
        self.commit_model()

    @rule(seed=PICK)
    def index(self, seed: int) -> None:
        """By pylance, over a column that may have one, of any kind that it builds over a few rows."""
        dice = random.Random(seed)
        column = dice.choice([*self.current.columns])
        kinds = index_kinds(self.current.columns[column])
        if self.stable and self.current.file_version == "0.1":  # where pylance finds rows twice that were updated
            kinds = [kind for kind in kinds if kind not in BY_ROW_ID]
        if not kinds:
            return
        kind = dice.choice(kinds)
        name = next((name for name, found in self.current.indices.items() if found == (column, kind)), None)
        name = name or f"{column}_{kind}".lower()
        if kind == "IVF_FLAT":
            if all(row[column] is None for row in self.current.rows.values()):  # nothing to be trained with
                return
            self.open(lance).create_index(column, kind, name=name, num_partitions=1, replace=True)
        else:
            library = LIBRARIES[len(self.versions) % 2] if kind == "INVERTED" else lance
            self.open(library).create_scalar_index(column, kind, name=name, replace=True)
        self.current.indices[name] = (column, kind)
        self.commit_model()

    @precondition(lambda self: self.current.indices)
    @rule()
    def optimize_indices(self) -> None:
        try:
            self.open(lance).optimize.optimize_indices()
        except OSError as error:
            assert "KMeans cannot train" in str(error), error  # no vectors are left that are not null
        self.commit_model()

    # commits of what was prepared

    @rule(library=LIBRARY, seed=PICK, together=st.booleans())
    def commit_appends(self, library: Any, seed: int, together: bool) -> None:
        """Fragments that were written before, committed as one version or one after the other, for one version."""
        names, table = [*self.current.columns], self.open(library)
        transactions = []
        for part in (seed, seed + 1):
            rows = self.new_rows(part, names)
            if not rows:
                continue
            fragments = library.fragment.write_fragments(
                self.source(rows, names), table, storage_options=self.storage_options and dict(self.storage_options)
            )
            transactions.append(library.Transaction(table.version, library.LanceOperation.Append(fragments)))
            self.current.rows.update({row["key"]: row for row in rows})
            if not together:
                library.LanceDataset.commit(table, transactions[-1])
                self.commit_model()
        if together and transactions:
            library.LanceDataset.commit_batch(table, transactions)
            self.commit_model()

    @rule(library=LIBRARY)
    def migrate_names(self, library: Any) -> None:
        """Manifests get the newer names. Handles of pylance that missed it would use the older ones."""
        self.open(library).migrate_manifest_paths_v2()
        self.branch.stale = [(version, table) for version, table in self.branch.stale if _is_ours(table)]

    # other places

    @precondition(lambda self: self.storage_options is None)
    @rule(library=LIBRARY, as_root=st.booleans())
    def add_base(self, library: Any, as_root: bool) -> None:
        name = f"base-{len(self.bases) + 1}"
        self.bases.append(name)
        os.makedirs(f"{self.uri}-{name}")
        self.open(library).add_bases([library.DatasetBasePath(f"{self.uri}-{name}", name, as_root)])
        self.commit_model()

    @rule(library=LIBRARY, seed=PICK, deep=st.booleans())
    def clone(self, library: Any, seed: int, deep: bool) -> None:
        """Some version of the branch; steps go on there, and what it was cloned from stays what it was."""
        if len(self.origins) == 2:
            return
        version = random.Random(seed).choice(sorted(self.versions))
        if deep and self.storage_options and self.open(lance_io).base_paths():  # of which pylance makes none
            library = lance_io
        table, target = self.open(library), f"{self.uri}-clone"
        (table.deep_clone if deep else table.shallow_clone)(target, (self.name, version))
        self.origins.append((self.uri, self.name, table.version, self.current.expected()))
        content = copy.deepcopy(self.versions[version])
        self.uri, self.name, self.tags = target, None, {}
        self.branches = {None: Branch(None, {}, content)}
        self.commit_model()

    # what must hold

    @invariant()
    def both_see_the_model(self) -> None:
        theirs, ours = self.open(lance), self.open(lance_io)
        assert theirs.version == ours.version
        tables = [one.to_table(with_row_id=True, with_row_address=True) for one in (theirs, ours)]
        assert_same(tables[1], tables[0], "ours beside pylance's")
        names = list(self.current.columns)
        assert_same(sorted_rows(ours), self.current.expected(), "model")
        assert ours.count_rows() == theirs.count_rows() == len(self.current.rows)
        assert ours.schema.names == theirs.schema.names == names
        assert [one.id() for one in ours.lance_schema.fields()] == [one.id() for one in theirs.lance_schema.fields()]
        for one in (theirs, ours):
            assert dict(one.config()) == self.current.config
            assert dict(one.metadata) == self.current.metadata
            assert _texts(one.schema.metadata) == self.current.schema_metadata
            described = {each.name: _texts(each.metadata) for each in one.schema if each.metadata}
            assert described == {name: entries for name, entries in self.current.field_metadata.items() if entries}
            indices = {each.name: each.field_names for each in one.describe_indices()}
            assert indices == {name: [column] for name, (column, _) in self.current.indices.items()}
            tags = {name: (tag["branch"], tag["version"]) for name, tag in one.tags.list().items()}
            assert tags == self.tags
            assert {*one.branches.list()} == {name for name in self.branches if name is not None}
        assert _bases(ours) == _bases(theirs)
        self.check_row_ids(tables[0])

    def check_row_ids(self, table: pa.Table) -> None:
        """Row ids are unique, and rows keep them where they are stable."""
        ids = dict(zip(table["key"].to_pylist(), table["_rowid"].to_pylist(), strict=True))
        assert len(set(ids.values())) == len(ids)
        if self.stable:
            assert all(ids[key] == kept for key, kept in self.branch.row_ids.items() if key in ids)
            self.branch.row_ids = ids

    @invariant()
    def an_old_version_is_what_it_was(self) -> None:
        version = random.Random(len(self.versions) * 31 + len(self.current.rows)).choice(sorted(self.versions))
        for library in LIBRARIES:
            assert_same(sorted_rows(self.open(library, version)), self.versions[version].expected(), f"{version}")
        for tag, (_, tagged) in self.tags.items():
            for library in LIBRARIES:
                assert self.open(library, tag).version == tagged

    @precondition(lambda self: self.current.indices)
    @invariant()
    def an_index_finds_what_a_scan_finds(self) -> None:
        table = self.open(lance)
        name = random.Random(len(self.versions)).choice(sorted(self.current.indices))
        column, kind = self.current.indices[name]
        if kind == "IVF_FLAT":
            with_values = {key for key, row in self.current.rows.items() if row[column] is not None}
            nearest = {"column": column, "q": [1.0, 2.0], "k": len(self.current.rows) + 1}
            assert {*table.to_table(["key"], nearest=nearest)["key"].to_pylist()} == with_values
        elif kind == "INVERTED":
            found = table.to_table(["key"], full_text_query={"columns": [column], "query": "w1"})
            expected = {key for key, row in self.current.rows.items() if row[column] == "w1"}
            assert {*found["key"].to_pylist()} == expected
        else:
            dtype = self.current.columns[column]
            text, holds = index_question(kind, column, dtype, self.next_key // 3)
            by_index, by_scan, ours = (
                one.to_table(["key"], filter=text, **options)["key"].to_pylist()
                for one, options in ((table, {}), (table, {"use_scalar_index": False}), (self.open(lance_io), {}))
            )
            assert ours == by_scan
            assert {*ours} == {key for key, row in self.current.rows.items() if holds(row)}
            if self.current.file_version == "0.1":  # where pylance gives rows first that the index does not know
                by_index.sort()
                ours.sort()
            assert by_index == ours, f"{kind}: {text}"
        stats = table.stats.index_stats(name)
        assert stats["num_indexed_rows"] + stats["num_unindexed_rows"] == len(self.current.rows)

    @precondition(lambda self: self.origins)
    @invariant()
    def what_was_cloned_stays(self) -> None:
        uri, branch, version, expected = self.origins[len(self.versions) % len(self.origins)]
        library = LIBRARIES[len(self.current.rows) % 2]
        table = library.dataset(uri, storage_options=self.storage_options and dict(self.storage_options))
        table = table if branch is None else table.checkout_version((branch, None))
        assert table.version == version
        assert_same(sorted_rows(table), expected, "origin")


def index_kinds(dtype: pa.DataType) -> Sequence[str]:
    """Kinds of indices that pylance builds over values of a type."""
    if pa.types.is_integer(dtype):
        return ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")
    if dtype == pa.string():
        return ("BTREE", "BITMAP", "NGRAM", "INVERTED")
    if pa.types.is_fixed_size_list(dtype):
        return ("IVF_FLAT",)
    return ("LABEL_LIST",) if pa.types.is_list(dtype) else ()


def index_question(
    kind: str, column: str, dtype: pa.DataType, low: int
) -> tuple[str, Callable[[dict[str, Any]], bool]]:
    """A filter that an index answers, as text and as a function of a row."""
    if kind == "LABEL_LIST":
        wanted = {low % 50, 7}
        return f"array_has_any({column}, {sorted(wanted)})", lambda row: bool(wanted & {*(row[column] or ())})
    if kind == "NGRAM":
        return f"contains({column}, 'w1')", lambda row: "w1" in (row[column] or "")
    if dtype == pa.string():
        return f"{column} = 'w1'", lambda row: row[column] == "w1"
    if kind == "BLOOMFILTER":
        return f"{column} = {low}", lambda row: row[column] == low
    text = f"{column} >= {low} and {column} < {low + 40}"
    return text, lambda row: row[column] is not None and low <= row[column] < low + 40


def sorted_rows(table: Any) -> pa.Table:
    """All rows in the order of their keys."""
    return pa.Table.from_pylist(
        sorted(table.to_table().to_pylist(), key=lambda row: row["key"]),
        schema=pa.schema([(one.name, one.type) for one in table.schema]),
    )


def _is_ours(table: Any) -> bool:
    return isinstance(table, lance_io.LanceDataset)


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


def _bases(table: Any) -> set[tuple[int, str | None, str]]:
    return {(number, base.name, base.path) for number, base in table.base_paths().items()}


def _set(values: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def run(machine: type[Alternation], *, steps: int, examples: int) -> None:
    """Run a machine: so many examples of so many steps; `LANCE_IO_STATEFUL_STEPS` asks for longer and other ones."""
    run_state_machine_as_test(
        seeded(machine),
        settings=settings(
            max_examples=examples * max(1, STEPS // steps),
            stateful_step_count=max(steps, min(STEPS, 60)),
            derandomize=not STEPS,
            database=None,
            report_multiple_bugs=False,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
