"""A table in a store that outlives the processes which write to it, and what must be true of it at any time.

`LANCE_IO_SIMULATE` is the size of what is tried by chance or in samples, 1 by default; 50 leaves nothing out.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

import lance_io
from lance_io.changes.operations.lance_operation import Index
from lance_io.changes.upkeep.change_tags import create_tag, delete_tag, update_tag
from lance_io.changes.write.write_fragments import write_fragments_async
from lance_io.commit.external import ExternalHandler
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.query import MatchQuery
from lance_io.reads.version.session import Session
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.manifest.paths import deletion_file_location
from lance_io.testing.manifest_rows import MemoryManifestStore
from lance_io.testing.wrap import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from lance_io.commit.external import Row
    from lance_io.errors import CommitUnknownError
    from lance_io.store.api import ObjectStore
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.testing.wrap import WrappedStore

SIZE = int(os.environ.get("LANCE_IO_SIMULATE", "1"))
URI = "memory://t"


async def rows(start: int, num_rows: int = 6) -> AsyncIterator[pa.RecordBatch]:
    """Batches of one row each, from the running loop; numbers tell rows apart."""
    for number in range(start, start + num_rows):
        yield pa.record_batch({"a": pa.array([number], pa.int64())})


async def some_rows(values: tuple[int, ...]) -> AsyncIterator[pa.RecordBatch]:
    """The same for chosen numbers."""
    for number in values:
        yield pa.record_batch({"a": pa.array([number], pa.int64())})


INDEX = "0c5e4b9e-6f4e-4b8e-9d55-0f6c9a4a7a11"
SCHEMA = pa.schema([("a", pa.int64())])


@dataclass
class World:
    """Objects of a store, and rows of a database beside it (None: the store alone decides).

    place  where the table is, by the store as it is
    """

    place: Location = field(default_factory=lambda: Location(MemoryStore(), "t", URI))
    rows: dict[tuple[str, int], Row] | None = None

    def copy(self) -> World:
        """Another world that begins as this one is."""
        other = MemoryStore()
        other._objects = dict(self.place.store._objects)  # type: ignore[attr-defined]
        return World(Location(other, "t", URI), None if self.rows is None else dict(self.rows))

    def session(self, store: WrappedStore | None = None) -> Session:
        """What one process knows when it begins; `store`: how it sees the world's store."""
        session = Session()
        seen: ObjectStore = store or self.place.store
        handler: Any = PutAbsentHandler()
        if self.rows is not None:
            database = MemoryManifestStore() if store is None else CountedRows(store)
            database.rows = self.rows
            handler = ExternalHandler(database)
        session._handlers[seen] = handler
        session.locate = lambda uri, options: Location(seen, uri.removeprefix("memory://"), uri)
        return session

    # -- what a fresh process sees -----------------------------------------------------------------------------------

    def manifests(self) -> list[Manifest]:
        """All versions that there are, oldest first; half-done ones of the database are finished by looking."""
        store: Any = self.place.store
        session = self.session()
        handler = session.handler(session.locate(URI, None))
        files = drive_sync(handler.list_after(self.place, 0))
        return [decode_manifest(store.get_sync(file.key)) for file in files]

    def newest(self) -> tuple[int, list[int]]:
        """Number and rows of the newest version; 0 and none without a table."""
        try:
            table = self.open()
        except ValueError:
            return 0, []
        return table.version, numbers(table)

    def open(self, version: int | None = None) -> lance_io.LanceDataset:
        """A version, the newest by default, as a fresh process sees it."""
        return lance_io.dataset(URI, version, session=self.session())

    def check(self) -> tuple[int, list[int]]:
        """Every version is whole: its files are there and its rows can be read, and every tag names a version.

        Gives what `newest` does.
        """
        store: Any = self.place.store
        manifests = self.manifests()
        if not manifests:
            return self.newest()
        rows: list[int] = []
        for manifest in manifests:
            for path in referenced(manifest):
                store.head_sync(self.place.key(path))
            rows = numbers(self.open(manifest.version))
            check_indices(self.open(manifest.version), rows)
        table = self.open()
        assert table.version == manifests[-1].version
        if "words" in table.schema.names and table.describe_indices():
            matches = table.to_table(["a"], full_text_query=MatchQuery("row", "words"))
            assert sorted(matches["a"].to_pylist()) == rows
        if "v" in table.schema.names and table.describe_indices():
            nearest = {"column": "v", "q": [0.0, 1.0], "k": 2 * len(rows), "nprobes": len(CENTROIDS)}
            assert sorted(table.to_table(["a"], nearest=nearest)["a"].to_pylist()) == rows
        assert {tag["version"] for tag in table.tags.list().values()} <= {one.version for one in manifests}
        for name in table.branches.list():
            if store.list_sync(self.place.key("tree", name, "_versions", "0")):  # unless it is being removed
                assert numbers(table.checkout_version((name, None))) == [*FIRST]
        return table.version, rows


def numbers(table: lance_io.LanceDataset) -> list[int]:
    """The rows of a version, sorted. Columns that `add_values` and `join` add are as they make them."""
    rows = table.to_table()
    found: list[int] = rows["a"].to_pylist()
    for name, of_row in ADDED.items():
        if name in rows.schema.names:
            assert rows[name].to_pylist() == [of_row(number) for number in found]
    return sorted(found)


def check_indices(table: lance_io.LanceDataset, rows: list[int]) -> None:
    """An index that has files finds each row."""
    if any(index.index_type == "BTree" for index in table.describe_indices()):
        assert table.get("a", rows, ["a"])["a"].to_pylist() == sorted(rows)


def referenced(manifest: Manifest) -> set[str]:
    """Paths of all files that a version names, below the table's folder."""
    paths = {f"_transactions/{manifest.transaction_file}"}
    for fragment in manifest.fragments:
        paths |= {f"data/{file.path}" for file in fragment.files}
        if fragment.deletion_file is not None:
            paths.add(deletion_file_location(fragment.id, fragment.deletion_file, manifest.base_paths).relative)
    return paths


class CountedRows(MemoryManifestStore):
    """Rows whose writes are requests of the store beside them, so that they are counted and fail as those do."""

    def __init__(self, store: WrappedStore) -> None:
        super().__init__()
        self._store = store

    answers_sync = False

    def get(self, base: str, version: int) -> Any:
        """One row."""
        return (yield _Counted(self._store, "get", super().get(base, version)))

    def get_latest(self, base: str) -> Any:
        """The highest row."""
        return (yield _Counted(self._store, "get", super().get_latest(base)))

    def put_if_absent(self, base: str, row: Row) -> Any:
        """Reserve a number."""
        yield _Counted(self._store, "put", super().put_if_absent(base, row))

    def put_if_present(self, base: str, row: Row) -> Any:
        """Finalize a version."""
        yield _Counted(self._store, "put", super().put_if_present(base, row))

    def list_rows(self, base: str) -> Any:
        """All rows."""
        return (yield _Counted(self._store, "list", super().list_rows(base)))

    def remove_same(self, base: str, row: Row) -> Any:
        """Remove a row."""
        return (yield _Counted(self._store, "delete", super().remove_same(base, row)))


class _Counted:
    """A request to the database."""

    def __init__(self, store: WrappedStore, operation: Any, plan: Any) -> None:
        self._store, self._request, self._plan = store, Request(operation, "a row"), plan

    def answer_sync(self) -> None:
        raise AssertionError("asked on the loop only")

    async def answer_async(self) -> Any:
        async def send() -> Any:
            return drive_sync(self._plan)

        return await self._store.request(self._request, send)


# -- changes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A change of a table.

    before  changes that make the table that it is made on
    after   rows of the newest version when the change was made once
    commits whether it makes a version
    """

    name: str
    change: Callable[[Session], Awaitable[Any]]
    before: tuple[Callable[[Session], Awaitable[Any]], ...]
    after: tuple[int, ...]
    commits: bool = True


async def create(session: Session) -> None:
    """Rows 0 to 5 in two files."""
    await AsyncDataset.write(rows(0), URI, SCHEMA, session=session, max_rows_per_file=3)


async def append(session: Session) -> None:
    """Rows 10 to 15 in two files."""
    await AsyncDataset.write(rows(10), URI, SCHEMA, "append", session=session, max_rows_per_file=3)


async def overwrite(session: Session) -> None:
    """Rows 20 to 25 and no others."""
    await AsyncDataset.write(rows(20), URI, SCHEMA, "overwrite", session=session)


async def delete(session: Session) -> None:
    """All rows below 4: one fragment goes, another gets a deletion file."""
    table = await AsyncDataset.open(URI, session=session)
    await table.delete("a < 4")


async def update(session: Session) -> None:
    """All rows below 4 get other numbers: they leave their fragments for a new one."""
    table = await AsyncDataset.open(URI, session=session)
    await table.update({"a": "a + 100"}, "a < 4")


async def merge(session: Session) -> None:
    """Rows 2 and 3 are written anew, 50 and 51 come, and of the others those below 2 go."""
    table = await AsyncDataset.open(URI, session=session)
    clauses = table.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    await clauses.when_not_matched_by_source_delete("a < 2").execute(some_rows((2, 3, 50, 51)), schema=SCHEMA)


async def add_columns(session: Session) -> None:
    """Two columns without values."""
    table = await AsyncDataset.open(URI, session=session)
    await table.add_columns([pa.field("b", pa.int64()), pa.field("c", pa.int64())])


async def patch(session: Session) -> None:
    """Row 2 gets another value of one column, where it is."""
    table = await AsyncDataset.open(URI, session=session)
    given = pa.table({"a": [2, 60], "b": [7, 8]})
    await table.merge_insert("a").when_matched_update_all().write_mode("rewrite_columns").execute(given)


async def restore(session: Session) -> None:
    """The first version again."""
    table = await AsyncDataset.open(URI, 1, session=session)
    await table.restore()


async def tag(session: Session) -> None:
    """A name for the first version."""
    table = await AsyncDataset.open(URI, session=session)
    await drive_async(create_tag(table._state, "named", 1))


async def move_tag(session: Session) -> None:
    """The name for the second version."""
    table = await AsyncDataset.open(URI, session=session)
    await drive_async(update_tag(table._state, "named", 2))


async def remove_tag(session: Session) -> None:
    """No name."""
    table = await AsyncDataset.open(URI, session=session)
    if "named" in await table.tags():
        await drive_async(delete_tag(table._state, "named"))


async def branch(session: Session) -> None:
    """A branch that leaves the first version."""
    table = await AsyncDataset.open(URI, session=session)
    if "side" not in await table.branches():
        await table.create_branch("side", 1)
    side = await table.checkout_version(("side", None))
    assert await side.count_rows() == len(FIRST)


async def remove_branch(session: Session) -> None:
    """No branch, and nothing of it."""
    table = await AsyncDataset.open(URI, session=session)
    if "side" in await table.branches():
        await table.delete_branch("side")


async def add_bases(session: Session) -> None:
    """Two base paths."""
    table = await AsyncDataset.open(URI, session=session)
    await table.add_bases([lance_io.DatasetBasePath("/one", "one"), lance_io.DatasetBasePath("/two", "two")])


async def rename(session: Session) -> None:
    """A column without values gets another name; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if "b" in table.schema.names:
        await table.alter_columns({"path": "b", "name": "e"})


async def cast(session: Session) -> None:
    """A column is written anew with another type; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if table.schema.field("computed").type != pa.int32():
        await table.alter_columns({"path": "computed", "data_type": pa.int32()})


async def drop_column(session: Session) -> None:
    """A column goes; trying again finds it, or not."""
    table = await AsyncDataset.open(URI, session=session)
    if "b" in table.schema.names:
        await table.drop_columns(["b"])


async def configure(session: Session) -> None:
    """One entry of the configuration."""
    await (await AsyncDataset.open(URI, session=session)).update_config({"k": "v"})


async def add_index(session: Session) -> None:
    """An index, as far as its table knows of it: no case reads one."""
    index = Index(INDEX, "a_idx", [0], 1, {0, 1}, 0, index_details=("/lance.table.InvertedIndexDetails", b""))
    await AsyncDataset.commit(URI, lance_io.LanceOperation.CreateIndex([index], []), 1, session=session)


async def drop_index(session: Session) -> None:
    """No index; trying again finds it, or not."""
    table = await AsyncDataset.open(URI, session=session)
    if await table.describe_indices():
        await table.drop_index("a_idx")


async def build_index(session: Session) -> None:
    """An index of all rows; trying again finds it, or builds it."""
    table = await AsyncDataset.open(URI, session=session)
    if "a_idx" not in [index.name for index in await table.describe_indices()]:
        await table.create_scalar_index("a", "BTREE")


async def extend_index(session: Session) -> None:
    """A segment for the rows that the index does not cover."""
    table = await AsyncDataset.open(URI, session=session)
    await table.optimize.optimize_indices(num_indices_to_merge=0)


async def add_words(session: Session) -> None:
    """A column of texts; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if "words" not in table.schema.names:
        await table.add_columns({"words": "concat('row ', cast(a as string))"})


async def build_texts(session: Session) -> None:
    """A full-text index that can be read; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if not await table.describe_indices():
        await table.create_scalar_index("words", "INVERTED", "words_idx", with_position=True)


async def append_words(session: Session) -> None:
    """Rows 10 to 15, with texts."""
    added = pa.table({"a": SECOND, "words": [f"row {number}" for number in SECOND]})
    await AsyncDataset.write(added, URI, mode="append", session=session)


async def optimize_index(session: Session) -> None:
    """One segment of all rows; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    await table.optimize.optimize_indices(num_indices_to_merge=1)


def vectors_of(numbers: Sequence[int]) -> pa.Array:
    """A vector for each row."""
    return pa.array([[float(number), 1.0] for number in numbers], pa.list_(pa.float32(), 2))


async def add_vectors(session: Session) -> None:
    """A column of vectors; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if "v" not in table.schema.names:
        await table.add_columns(lambda batch: pa.record_batch({"v": vectors_of(batch["a"].to_pylist())}))


async def build_vectors(session: Session) -> None:
    """An index of vectors; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if not await table.describe_indices():
        await table.create_index("v", "IVF_FLAT", "v_idx", ivf_centroids=CENTROIDS)


async def append_vectors(session: Session) -> None:
    """Rows 10 to 15, with vectors."""
    added = pa.table({"a": SECOND, "v": vectors_of(SECOND)})
    await AsyncDataset.write(added, URI, mode="append", session=session)


async def commit_batch(session: Session) -> None:
    """Two appends, of rows 10 to 12 and of rows 13 to 15, as one version."""
    options: dict[str, Any] = {"mode": "append", "session": session, "return_transaction": True}
    made = [await write_fragments_async(rows(start, 3), URI, SCHEMA, **options) for start in (10, 13)]
    await AsyncDataset.commit_batch(await AsyncDataset.open(URI, session=session), made)


async def truncate(session: Session) -> None:
    """No rows."""
    await (await AsyncDataset.open(URI, session=session)).truncate_table()


async def clean(session: Session) -> None:
    """Only the newest version stays, and what a tag names."""
    table = await AsyncDataset.open(URI, session=session)
    await table.cleanup_old_versions(timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)


def commit_of(unknown: CommitUnknownError) -> Callable[[Session], Awaitable[Any]]:
    """The commit that nobody knows the end of, to be made again, perhaps by another process."""
    transaction = pickle.loads(pickle.dumps(unknown)).transaction
    return lambda session: AsyncDataset.commit(URI, transaction, session=session)


FIRST: tuple[int, ...] = tuple(range(6))
SECOND: tuple[int, ...] = tuple(range(10, 16))
CENTROIDS: Final = np.array([[2, 1], [12, 1]], np.float32)  # given, so that nothing is learned
ADDED: dict[str, Callable[[int], int | None]] = {
    "computed": lambda number: number,
    "joined": lambda number: number if number in SECOND else None,
}


async def add_values(session: Session) -> None:
    """A column that a function computes; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if "computed" not in table.schema.names:
        await table.add_columns(lambda batch: pa.record_batch({"computed": batch["a"]}))


async def join(session: Session) -> None:
    """A column of another table; trying again finds it, or makes it."""
    table = await AsyncDataset.open(URI, session=session)
    if "joined" not in table.schema.names:
        await table.merge(pa.table({"a": SECOND, "joined": SECOND}), "a")


CASES = (
    Case("create", create, (), FIRST),
    Case("append", append, (create,), FIRST + SECOND),
    Case("overwrite", overwrite, (create,), tuple(range(20, 26))),
    Case("delete", delete, (create, append), (4, 5, *SECOND)),
    Case("delete again", delete, (create, append, lambda session: delete_one(session)), (4, 5, *SECOND)),
    Case("update", update, (create, append), (4, 5, *SECOND, *range(100, 104))),
    Case("merge", merge, (create, append), (2, 3, 4, 5, *SECOND, 50, 51)),
    Case("patch", patch, (create, append, add_columns), FIRST + SECOND),
    Case("add values", add_values, (create, delete, append), (4, 5, *SECOND)),
    Case("join", join, (create, append), FIRST + SECOND),
    Case("restore", restore, (create, append), FIRST),
    Case("tag", tag, (create,), FIRST, commits=False),
    Case("move tag", move_tag, (create, append, tag), FIRST + SECOND, commits=False),
    Case("remove tag", remove_tag, (create, tag), FIRST, commits=False),
    Case("branch", branch, (create, append), FIRST + SECOND, commits=False),
    Case("remove branch", remove_branch, (create, branch), FIRST, commits=False),
    Case("cleanup beside a branch", clean, (create, branch, delete, overwrite), tuple(range(20, 26)), commits=False),
    Case("add bases", add_bases, (create,), FIRST),
    Case("rename", rename, (create, add_columns), FIRST),
    Case("cast", cast, (create, delete, append, add_values), (4, 5, *SECOND)),
    Case("drop column", drop_column, (create, add_columns, append), FIRST + SECOND),
    Case("configure", configure, (create,), FIRST),
    Case("drop index", drop_index, (create, add_index), FIRST),
    Case("build index", build_index, (create, append), FIRST + SECOND),
    Case("extend index", extend_index, (create, build_index, append), FIRST + SECOND),
    Case("build texts", build_texts, (create, add_words), FIRST),
    Case("optimize texts", optimize_index, (create, add_words, build_texts, append_words), FIRST + SECOND),
    Case("optimize vectors", optimize_index, (create, add_vectors, build_vectors, append_vectors), FIRST + SECOND),
    Case("commit batch", commit_batch, (create,), FIRST + SECOND),
    Case("truncate", truncate, (create, append), ()),
    Case("cleanup", clean, (create, append, delete, overwrite), tuple(range(20, 26)), commits=False),
    Case("cleanup beside a tag", clean, (create, append, tag, delete), (4, 5, *SECOND), commits=False),
)
if SIZE > 1:
    CASES = (*CASES, Case("build vectors", build_vectors, (create, add_vectors), FIRST))


async def delete_one(session: Session) -> None:
    """Row 0, so that the next delete merges deletion files."""
    table = await AsyncDataset.open(URI, session=session)
    await table.delete("a = 0")
