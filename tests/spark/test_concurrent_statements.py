"""Pairs of statements at once: one of SQL, whose tasks have read a version, and a commit of either library since.

The worker answers a client in Python as it answers the JAR, so that no pair waits for Spark.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64decode, b64encode
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

import lance_io
from lance_io.codecs.roaring import encode_roaring
from tests.spark.worker_client import Worker, WorkerError, read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)

STRUCT: Final = StructType().add("id", LongType()).add("name", StringType()).add("x", DoubleType())
PRIMARY_KEY: Final = {b"lance-schema:unenforced-primary-key": b"true"}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker.start() as started:
        yield started


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with stable row ids, to be copied."""
    uri = str(tmp_path_factory.mktemp("template") / "t.lance")
    make_table(uri)
    return uri


def make_table(uri: str, *, stable: bool = True, key: bool = False) -> None:
    """Three fragments of thirty rows: id, name, x."""
    id_field = pa.field("id", pa.int64(), nullable=not key, metadata=PRIMARY_KEY if key else None)
    schema = pa.schema([id_field, ("name", pa.string()), ("x", pa.float64())])
    table = pa.table({"id": range(90), "name": ["old"] * 90, "x": [0.5] * 90}, schema=schema)
    data = lance.write_dataset(table, uri, max_rows_per_file=30, enable_stable_row_ids=stable)
    data.update_config({"lance.overwrite.columns": "id"})


def rows_of(uri: str) -> dict[int, list[str]]:
    """Names by id; a list for each id, because an id may occur twice."""
    rows: dict[int, list[str]] = {}
    for row in lance.dataset(uri).to_table(columns=["id", "name"]).to_pylist():
        rows.setdefault(row["id"], []).append(row["name"])
    return rows


# -- statements of SQL -------------------------------------------------------------------------------------------------


@dataclass
class Statement:
    """One statement between its tasks and its commit."""

    worker: Worker
    options: dict[str, str]
    write: str
    result: dict[str, Any]
    merge: dict[str, Any] | None = None

    def commit(self) -> int | None:
        version: int | None = self.worker.ask("commit", write=self.write, results=[self.result], merge=self.merge)[
            "version"
        ]
        return version

    def abort(self) -> None:
        self.worker.ask("abort", write=self.write, results=[self.result])


class Planner:
    """Plans statements of the version that is the newest now."""

    def __init__(self, worker: Worker, uri: str) -> None:
        self.worker, self.options = worker, {"path": uri}
        self.pinned = worker.ask("load", options=self.options)["pinned"]
        self.ids = {
            row["id"]: (row["_rowaddr"], row["_rowid"])
            for row in lance.dataset(uri).to_table(columns=["id"], with_row_id=True, with_row_address=True).to_pylist()
        }

    def change(
        self,
        statement: str,
        *,
        leave: list[int] = (),
        move: list[int] = (),
        insert: list[int] = (),
        on: Any = None,
        has_clause: bool = False,
    ) -> Statement:
        """DELETE, UPDATE or MERGE: ids of rows that leave, that get the name `mine`, and that are new.

        has_clause  whether a MERGE has WHEN NOT MATCHED, which may find no row
        """
        plan = self.worker.ask(
            "plan_change",
            options=self.options,
            pinned=self.pinned,
            statement=statement,
            schema=STRUCT.json() if move or insert else json.dumps({"type": "struct", "fields": []}),
        )
        offsets: dict[int, list[int]] = {}
        for id in [*leave, *move]:
            fragment, offset = divmod(self.ids[id][0], 1 << 32)
            offsets.setdefault(fragment, []).append(offset)
        bitmaps = {
            str(fragment): b64encode(encode_roaring(np.array(sorted(own), np.uint32))).decode()
            for fragment, own in offsets.items()
        }
        result: dict[str, Any] = {"partition": 0, "deleted": bitmaps, "updated": len(move)}
        if move:
            result["moved"] = self.send(plan["task"], move, moves=plan["moves"])
        if insert:
            result["inserted"] = self.send(plan["task"], insert)
        merge = {"on": on, "inserts": has_clause or bool(insert)} if statement == "MERGE" else None
        return Statement(self.worker, self.options, plan["write"], result, merge)

    def add(self, kind: str, insert: list[int], *, merge: dict[str, Any] | None = None, **fields: Any) -> Statement:
        """INSERT in its kinds, or a MERGE that only inserts, which Spark makes an append."""
        given = {"predicates": [], "write_options": {}, "kind": kind, **fields}
        plan = self.worker.ask("plan_write", options=self.options, pinned=self.pinned, schema=STRUCT.json(), **given)
        result = {"partition": 0, "inserted": self.send(plan["task"], insert)}
        return Statement(self.worker, self.options, plan["write"], result, merge)

    def send(self, write: str, ids: list[int], *, moves: bool = False) -> str:
        """The rows of a task; the answer names their files."""
        rows = pa.table({"id": ids, "name": ["mine"] * len(ids), "x": [1.5] * len(ids)})
        if moves:
            rows = rows.append_column("_rowid", pa.array([self.ids[id][1] for id in ids], pa.int64()))
        with (
            self.worker.request("write_rows", write=write, partition=0, moves=moves) as connected,
            connected.makefile("rb") as answers,
        ):
            schema = pa.ipc.read_schema(pa.BufferReader(b64decode(read_answer(answers)["arrow"])))
            with connected.makefile("wb") as out, pa.ipc.new_stream(out, schema) as stream:
                stream.write_table(rows.cast(schema))
            connected.sendall(b"C")
            return str(read_answer(answers)["files"])


FIRST: Final = {"op": "<", "args": [{"col": ["id"]}, {"lit": "1", "type": "bigint"}]}

MINE: Final[dict[str, Callable[[Planner], Statement]]] = {
    "DELETE": lambda plan: plan.change("DELETE", leave=[0]),
    "UPDATE": lambda plan: plan.change("UPDATE", move=[0]),
    "MERGE that updates": lambda plan: plan.change("MERGE", move=[0], leave=[2]),
    "MERGE that inserts": lambda plan: plan.add("append", [500], merge={"on": None}),
    "MERGE that finds all": lambda plan: plan.change("MERGE", move=[0], has_clause=True),
    "MERGE of both": lambda plan: plan.change("MERGE", move=[0], insert=[500]),
    "INSERT": lambda plan: plan.add("append", [500]),
    "REPLACE WHERE": lambda plan: plan.add("where", [0, 500], predicates=[FIRST]),
    "dynamic overwrite": lambda plan: plan.add("dynamic", [0, 500]),
}
LEFT: Final = {"DELETE": {0}, "MERGE that updates": {2}}  # ids that leave
MOVED: Final = {"UPDATE": {0}, "MERGE that updates": {0}, "MERGE that finds all": {0}, "MERGE of both": {0}}
NEW: Final = {"MERGE that inserts": {500}, "MERGE of both": {500}, "INSERT": {500}}
NEW.update({"REPLACE WHERE": {0, 500}, "dynamic overwrite": {0, 500}})


def their_rows(data: Any, ids: list[int]) -> pa.Table:
    columns = {"id": ids, "name": ["theirs"] * len(ids), "x": [2.5] * len(ids)}
    return pa.table(columns, schema=data.schema)


def upsert(data: Any, ids: list[int], *, update: bool) -> None:
    builder = data.merge_insert("id")
    (builder.when_matched_update_all() if update else builder).when_not_matched_insert_all().execute(
        their_rows(data, ids)
    )


def append(data: Any, ids: list[int]) -> None:
    data.insert(their_rows(data, ids))


def overwrite(data: Any, ids: list[int]) -> None:
    library = lance if isinstance(data, lance.LanceDataset) else lance_io
    library.write_dataset(their_rows(data, ids), data.uri, mode="overwrite")


OTHERS: Final[dict[str, Callable[[Any], object]]] = {
    "append": lambda data: append(data, [600]),
    "overwrite": lambda data: overwrite(data, [600]),
    "update in the fragment": lambda data: data.update({"name": "'theirs'"}, where="id = 1"),
    "update elsewhere": lambda data: data.update({"name": "'theirs'"}, where="id = 61"),
    "delete in the fragment": lambda data: data.delete("id = 1"),
    "delete elsewhere": lambda data: data.delete("id = 61"),
    "merge that inserts": lambda data: upsert(data, [600], update=False),
    "merge of both": lambda data: upsert(data, [61, 600], update=True),
    "compaction": lambda data: data.optimize.compact_files(target_rows_per_fragment=1000),
    "restore": lambda data: data.checkout_version(1).restore(),
    "null column": lambda data: data.add_columns(pa.field("more", pa.int32())),
    "index": lambda data: data.create_scalar_index("id", "BTREE"),
}
FRAGMENT: Final = {
    *("update in the fragment", "delete in the fragment", "compaction", "restore", "null column", "overwrite"),
}
NEW_ROWS: Final = {
    "overwrite",
    *("append", "update in the fragment", "update elsewhere", "merge that inserts", "merge of both"),
    *("restore", "null column"),
}
CONFLICTS: Final = {
    "DELETE": FRAGMENT,
    "UPDATE": FRAGMENT,
    "MERGE that updates": FRAGMENT,
    "MERGE that inserts": NEW_ROWS,
    "MERGE that finds all": FRAGMENT | NEW_ROWS,
    "MERGE of both": FRAGMENT | NEW_ROWS,
    "INSERT": {"restore", "overwrite"},
    "REPLACE WHERE": FRAGMENT | NEW_ROWS,
    "dynamic overwrite": FRAGMENT | NEW_ROWS,
}


@pytest.mark.parametrize("mine", MINE)
def test_pairs(worker: Worker, template: str, tmp_path: Path, mine: str) -> None:
    """The statement takes effect on top of the other commit, or is a conflict and leaves that commit alone."""
    for number, (other, library) in enumerate(product(OTHERS, (lance, lance_io))):
        change = OTHERS[other]
        uri = shutil.copytree(template, tmp_path / f"{number}.lance").as_posix()
        planner = Planner(worker, uri)
        statement = MINE[mine](planner)
        change(library.dataset(uri))
        between, version = rows_of(uri), lance.dataset(uri).version
        if other in CONFLICTS[mine]:
            with pytest.raises(WorkerError, match="CommitConflictError"):
                statement.commit()
            statement.abort()
            assert rows_of(uri) == between, (mine, other, library)
            assert lance.dataset(uri).version == version, (mine, other, library)
            continue
        assert statement.commit() == version + 1, (mine, other, library)
        expected = {id: names for id, names in between.items() if id not in LEFT.get(mine, ())}
        expected.update({id: ["mine"] for id in MOVED.get(mine, set()) | NEW.get(mine, set())})
        assert rows_of(uri) == expected, (mine, other, library)
        data = lance.dataset(uri)
        data.validate()
        kept = {row["id"]: row["_rowid"] for row in data.to_table(columns=["id"], with_row_id=True).to_pylist()}
        moved = [id for id in kept if id in planner.ids and id not in NEW.get(mine, ())]
        assert all(kept[id] == planner.ids[id][1] for id in moved), (mine, other, library)


@pytest.mark.parametrize("mine", MINE)
def test_pylance_follows(worker: Worker, template: str, tmp_path: Path, mine: str) -> None:
    """A handle of pylance that is older than the statement does its change on top of it."""
    changes: dict[str, tuple[Callable[[Any], object], dict[int, list[str]], set[int]]] = {
        "append": (OTHERS["append"], {600: ["theirs"]}, set()),
        "update": (OTHERS["update in the fragment"], {1: ["theirs"]}, set()),
        "delete": (OTHERS["delete in the fragment"], {}, {1}),
        "merge": (OTHERS["merge of both"], {61: ["theirs"], 600: ["theirs"]}, set()),
    }
    for name, (change, new, gone) in changes.items():
        uri = shutil.copytree(template, tmp_path / f"{name}.lance").as_posix()
        theirs = lance.dataset(uri)
        MINE[mine](Planner(worker, uri)).commit()
        between = rows_of(uri)
        change(theirs)
        assert rows_of(uri) == {**{id: own for id, own in between.items() if id not in gone}, **new}, (mine, name)


@pytest.mark.parametrize("library", [lance, lance_io], ids=["lance", "lance_io"])
def test_an_insert_overwrite_wins(worker: Worker, tmp_path: Path, library: Any) -> None:
    """Over all commits but another overwrite."""
    for other, change in OTHERS.items():
        uri = str(tmp_path / f"{other.replace(' ', '_')}.lance")
        make_table(uri)
        statement = Planner(worker, uri).add("replace", [500])
        change(library.dataset(uri))
        between, version = rows_of(uri), lance.dataset(uri).version
        if other == "overwrite":
            with pytest.raises(WorkerError, match="CommitConflictError"):
                statement.commit()
            statement.abort()
            assert (rows_of(uri), lance.dataset(uri).version) == (between, version)
        else:
            assert statement.commit() == version + 1, other
            assert rows_of(uri) == {500: ["mine"]}, other


def test_the_weaker_rule_is_a_property(worker: Worker, tmp_path: Path) -> None:
    for other in sorted(NEW_ROWS - FRAGMENT):
        uri = str(tmp_path / f"{other.replace(' ', '_')}.lance")
        make_table(uri)
        lance.dataset(uri).update_config({"isolation": "snapshot"})
        statements = [MINE["MERGE that inserts"](Planner(worker, uri)), MINE["MERGE of both"](Planner(worker, uri))]
        OTHERS[other](lance.dataset(uri))
        for statement in statements:
            statement.commit()
        assert len(rows_of(uri)[500]) == 2  # that is what it allows


def test_two_merges_of_one_new_key(worker: Worker, tmp_path: Path) -> None:
    """Both only insert, so that Spark makes appends of them."""
    uri = str(tmp_path / "t.lance")
    make_table(uri)
    first, second = (MINE["MERGE that inserts"](Planner(worker, uri)) for _ in range(2))
    first.commit()
    with pytest.raises(WorkerError, match="CommitConflictError"):
        second.commit()
    assert rows_of(uri)[500] == ["mine"]


def test_declared_keys_tell_which_merges_meet(worker: Worker, tmp_path: Path) -> None:
    """The transaction carries the keys of inserted rows, as merge_insert's does: only one key inserted twice meets."""
    uri = str(tmp_path / "t.lance")
    make_table(uri, key=True)

    def merge(key: int, *on: str) -> Statement:
        return Planner(worker, uri).add("append", [key], merge={"on": list(on) or None})

    both = Planner(worker, uri).change("MERGE", move=[0], insert=[503], on=["id"])
    statements = [merge(500, "id"), merge(501, "id"), merge(501, "id"), merge(502), both]
    statements[0].commit()
    stored = lance.dataset(uri).read_transaction(lance.dataset(uri).version).operation
    assert type(stored).__name__ == "Update"
    statements[1].commit()
    for statement in statements[2:4]:  # the same key; and a statement whose ON says something else
        with pytest.raises(WorkerError, match="CommitConflictError"):
            statement.commit()
    both.commit()
    with pytest.raises(WorkerError, match="CommitConflictError"):  # an append says no keys
        late = merge(504, "id")
        append(lance.dataset(uri), [505])
        late.commit()
    assert {id: names for id, names in rows_of(uri).items() if id > 499} == {
        500: ["mine"],
        501: ["mine"],
        503: ["mine"],
        505: ["theirs"],
    }


def test_merge_insert_of_pylance_meets_declared_keys(worker: Worker, tmp_path: Path) -> None:
    """In either order, one key stays one row."""
    uri = str(tmp_path / "t.lance")
    make_table(uri, key=True)
    theirs = lance.dataset(uri)
    mine = Planner(worker, uri).add("append", [500], merge={"on": ["id"]})
    other = Planner(worker, uri).add("append", [600], merge={"on": ["id"]})
    mine.commit()
    upsert(theirs, [500, 600], update=True)  # looks again, and updates 500
    with pytest.raises(WorkerError, match="CommitConflictError"):
        other.commit()
    assert {id: names for id, names in rows_of(uri).items() if id > 499} == {500: ["theirs"], 600: ["theirs"]}
