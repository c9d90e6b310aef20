"""Every call that changes a table, and what it makes of the plain content of `chain_world`.

version 1   rows 0 to 29 in three fragments: `a`, `b`, `c`, `d`
version 2   column `z`, in files of its own
version 3   an index of `b`, as far as the table knows of it: nobody reads it
version 4   rows 9 and 29 deleted, so that two fragments have a deletion file

Changes of rows are about one row (see `Change`), so that two of them meet in one fragment, or in one row, by chance.
Slot 8 is nobody's. What a call makes anew after a conflict has the effect that it has on the newest version.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

import lance_io
from lance_io import LanceOperation as Op
from lance_io.dataset.distributed import TablePlace, WriteJob, abort_write, commit_write, write_files
from lance_io.fragment import write_fragments
from lance_io.optimize import Compaction
from tests.simulate.chain_world import Call, ChainWorld, Content, Effect, Party, ids_of, with_rows
from tests.simulate.world import URI

if TYPE_CHECKING:
    from collections.abc import Iterable

RETRIES: Final = 100
COMPACTION: Final[dict[str, Any]] = {"target_rows_per_fragment": 1000}
DETAILS: Final = (
    "/lance.table.InvertedIndexDetails",
    b"",
)  # its files are not there: full text of a number is neither read nor built again


def value_of(kind: pa.DataType, key: int) -> Any:
    """The value of a column in a new row."""
    return f"s{key}" if pa.types.is_string(kind) else key


def rows_of(schema: pa.Schema, keys: Iterable[int]) -> pa.Table:
    """New rows with all columns."""
    keys = [*keys]
    columns = {one.name: pa.array([value_of(one.type, key) for key in keys], one.type) for one in schema}
    return pa.table(columns, schema=schema)


# -- effects ---------------------------------------------------------------------------------------------------------


def nothing(content: Content, _: Any) -> Content:
    """The rows are as they were."""
    return content


def inserting(schema: pa.Schema, ids: dict[str, int], keys: Iterable[int]) -> Effect:
    """New rows, in files that have the columns of the version that was open."""
    new = {key: {ids[one.name]: value_of(one.type, key) for one in schema} for key in keys}
    return lambda content, _: with_rows(content, {**content.rows, **new})


def giving(rows: pa.Table, ids: dict[str, int]) -> Effect:
    """Rows, new or not, by their columns: those of the version that was open, or, made anew, of the same names."""

    def effect(content: Content, made: Any) -> Content:
        later = ids_of(made)
        numbers = {
            name: ids[name] if ids[name] in content.fields else later.get(name, -1) for name in rows.column_names
        }
        changed = dict(content.rows)
        for row in rows.to_pylist():
            changed[row["a"]] = {**changed.get(row["a"], {}), **{numbers[name]: row[name] for name in row}}
        return with_rows(content, changed)

    return effect


def setting(keys: Iterable[int], name: str, value: Any) -> Effect:
    """Another value of a column, in those of the rows that are there; a function of the old value."""

    def effect(content: Content, _: Any) -> Content:
        number = next((number for number, one in content.fields.items() if one == name), None)
        changed = {
            key: {**content.rows[key], number: value(content.rows[key].get(number))}
            for key in keys
            if key in content.rows and number is not None
        }
        return with_rows(content, {**content.rows, **changed})

    return effect


def removing(keys: Iterable[int]) -> Effect:
    """Those of the rows go that are there."""
    gone = {*keys}
    return lambda content, _: with_rows(content, {key: row for key, row in content.rows.items() if key not in gone})


def adding(name: str, value: Any) -> Effect:
    """A new column, by a function of the row's key."""

    def effect(content: Content, made: Any) -> Content:
        number = ids_of(made)[name]
        assert number not in content.fields
        rows = {key: {**row, number: value(key)} for key, row in content.rows.items()}
        return Content({**content.fields, number: name}, rows)

    return effect


# -- calls: rows -----------------------------------------------------------------------------------------------------


def append(party: Party) -> Effect:
    table, keys = party.table, party.new_keys(3)
    effect = inserting(table.schema, party.fields, keys)
    table.insert(rows_of(table.schema, keys))
    return effect


def group_append(party: Party) -> Effect:
    table, keys = party.table, party.new_keys(3)
    effect = inserting(table.schema, party.fields, keys)
    lance_io.write_dataset(rows_of(table.schema, keys), table, mode="append", group_commit=True, session=party.session)
    return effect


def _written(party: Party, keys: Iterable[int]) -> Any:
    """New rows in files that no version names, which are the caller's."""
    with party.giving():
        return write_fragments(rows_of(party.table.schema, keys), party.table, mode="append", session=party.session)


def commit_append(party: Party) -> Effect:
    table, keys = party.table, party.new_keys(3)
    operation = Op.Append(_written(party, keys))
    lance_io.LanceDataset.commit(table, operation, table.version, max_retries=RETRIES)
    return inserting(table.schema, party.fields, keys)


def commit_batch(party: Party) -> Effect:
    table, keys = party.table, party.new_keys(4)
    made = [lance_io.Transaction(table.version, Op.Append(_written(party, part))) for part in (keys[:2], keys[2:])]
    party.world.given.add(f"t/_transactions/{table.version}-{made[0].uuid}.txn")  # which may be committed again
    lance_io.LanceDataset.commit_batch(table, made, max_retries=RETRIES)
    return inserting(table.schema, party.fields, keys)


def detached(party: Party) -> None:
    """A version outside of the sequence: what it holds is looked at here."""
    table, keys = party.table, party.new_keys(2)
    operation = Op.Append(_written(party, keys))
    made = lance_io.LanceDataset.commit(table, operation, table.version, detached=True)
    content = party.world.content_of(table.version)
    expected = inserting(table.schema, party.fields, keys)(content, None).named()
    assert {row["a"]: row for row in made.to_table().to_pylist()} == expected
    party.world.detached.append(made._state.manifest)


def distributed(party: Party) -> Effect:
    """As engines do it: tasks write, the planner commits, and where that fails removes what they wrote."""
    keys, place, names = party.new_keys(3), TablePlace(URI, {}, party.session), party.table.schema.names
    job = WriteJob.plan(place, lambda known: party.table.schema if known is None else known, names)
    schema, ids = job.arrow_schema, {one.name: one.id for one in job.schema.fields}
    batches = iter(rows_of(schema, keys).to_batches())
    written = [write_files(place, job, schema, batches, rows_per_file=2, bytes_per_file=1 << 20)]
    try:
        commit_write(place, job, written)
    except Exception:
        abort_write(place, job, written)
        raise
    return inserting(schema, ids, keys)


def delete(party: Party) -> Effect:
    party.table.delete(f"a = {party.key}", conflict_retries=RETRIES)
    return removing([party.key])


def delete_two(party: Party) -> Effect:
    """Rows of two fragments."""
    keys = [party.key, (party.key + 11) % 30]
    keys = [key for key in keys if key % 10 < 8]
    party.table.delete(f"a in ({', '.join(map(str, keys))})", conflict_retries=RETRIES)
    return removing(keys)


def delete_fragment(party: Party) -> Effect:
    first = 10 * party.change.fragment
    party.table.delete(f"a >= {first} and a < {first + 10}", conflict_retries=RETRIES)
    return removing(range(first, first + 10))


def commit_delete(party: Party) -> Effect | None:
    """A ready operation, whose rows nobody knows."""
    table = party.table
    at = table.to_table(columns=["a"], filter=f"a = {party.key}", with_row_address=True)["_rowaddr"].to_pylist()
    if not at:
        return None
    with party.giving():
        changed = table.get_fragment(at[0] >> 32).delete(f"a = {party.key}")
    operation = Op.Delete([] if changed is None else [changed], [at[0] >> 32] if changed is None else [], "a = ?")
    lance_io.LanceDataset.commit(table, operation, table.version, max_retries=RETRIES)
    return removing([party.key])


def truncate(party: Party) -> Effect:
    """Rows that came after the version that it was made on stay."""
    known = {*party.table.to_table(columns=["a"])["a"].to_pylist()}
    party.table.truncate_table()

    def effect(content: Content, made: Any) -> Content:
        left = {*made.to_table(columns=["a"])["a"].to_pylist()}
        assert left <= content.rows.keys() - known
        return with_rows(content, {key: content.rows[key] for key in left})

    return effect


def update(party: Party) -> Effect:
    party.table.update({"b": "b + 1"}, f"a = {party.key}", conflict_retries=RETRIES)
    return setting([party.key], "b", lambda old: old + 1)


def update_two(party: Party) -> Effect:
    """Rows of two fragments."""
    keys = [key for key in (party.key, (party.key + 10) % 30) if key % 10 < 8]
    party.table.update({"b": "b + 1"}, f"a in ({', '.join(map(str, keys))})", conflict_retries=RETRIES)
    return setting(keys, "b", lambda old: old + 1)


def _builder(party: Party) -> Any:
    return party.table.merge_insert("a").conflict_retries(RETRIES)


def merge(party: Party) -> Effect:
    """A row that may be there with another `b`, and a new one."""
    schema, new = party.table.schema, party.new_keys(1)
    given = rows_of(schema, [party.key, *new])
    given = given.set_column(given.column_names.index("b"), schema.field("b"), pa.array([-7, *new], pa.int32()))
    effect = giving(given, party.fields)
    _builder(party).when_matched_update_all().when_not_matched_insert_all().execute(given)
    return effect


def insert_only(party: Party) -> Effect:
    """A new row."""
    given = rows_of(party.table.schema, party.new_keys(1))
    effect = giving(given, party.fields)
    _builder(party).when_not_matched_insert_all().execute(given)
    return effect


def merge_delete(party: Party) -> Effect:
    """Of the rows that are not given one goes."""
    given = rows_of(party.table.schema, [8])
    _builder(party).when_not_matched_by_source_delete(f"a = {party.key}").execute(given)
    return removing([party.key])


def patch(party: Party) -> Effect:
    """Another value where the row is."""
    given = pa.table({"a": pa.array([party.key], pa.int64()), "b": pa.array([77], pa.int32())})
    _builder(party).when_matched_update_all().write_mode("rewrite_columns").execute(given)
    return setting([party.key], "b", lambda _: 77)


# -- calls: fragments and columns ------------------------------------------------------------------------------------


def compact(party: Party) -> Effect:
    party.table.optimize.compact_files(**COMPACTION)
    return nothing


def compact_deferred(party: Party) -> Effect | None:
    """With a file that says where rows of indexed fragments went."""
    if party.table.has_stable_row_ids:  # of which there is none
        return None
    party.table.optimize.compact_files(defer_index_remap=True, **COMPACTION)
    return nothing


def compact_steps(party: Party) -> Effect | None:
    """As engines do it; files of tasks are theirs."""
    with party.giving():
        plan = Compaction.plan(party.table, COMPACTION)
        results = [task.execute(party.table) for task in plan.tasks]
    if not results:
        return None
    Compaction.commit(party.table, results)
    return nothing


def add_null(party: Party) -> Effect:
    name = f"n{party.number}"
    party.table.add_columns([pa.field(name, pa.int64())])
    return adding(name, lambda _: None)


def add_sql(party: Party) -> Effect:
    name = f"n{party.number}"
    party.table.add_columns({name: "a + 1"})
    return adding(name, lambda key: key + 1)


def add_function(party: Party) -> Effect:
    name = f"n{party.number}"
    party.table.add_columns(lambda batch: pa.record_batch({name: batch["a"]}))
    return adding(name, lambda key: key)


def join(party: Party) -> Effect:
    name = f"n{party.number}"
    party.table.merge(pa.table({"a": pa.array([1, 2], pa.int64()), name: [1, 2]}), "a")
    return adding(name, lambda key: key if key in (1, 2) else None)


def _movable(party: Party) -> str:
    """The column that is renamed and cast."""
    return "d" if "d" in party.fields else "e"


def cast(party: Party) -> Effect:
    name = _movable(party)
    kind = pa.int32() if party.table.schema.field(name).type == pa.int64() else pa.int64()
    old = party.fields[name]
    party.table.alter_columns({"path": name, "data_type": kind})

    def effect(content: Content, made: Any) -> Content:
        number = ids_of(made)[name]
        rows = {key: {**row, number: row.get(old)} for key, row in content.rows.items()}
        return Content({number if one == old else one: each for one, each in content.fields.items()}, rows)

    return effect


def rename(party: Party) -> Effect:
    name = _movable(party)
    number, new = party.fields[name], "e" if name == "d" else "d"
    party.table.alter_columns({"path": name, "name": new})
    return lambda content, _: replace(content, fields={**content.fields, number: new})


def require(party: Party) -> Effect | None:
    """No nulls from now on."""
    if not party.table.schema.field("b").nullable:
        return None
    party.table.alter_columns({"path": "b", "nullable": False})
    return nothing


def drop(party: Party) -> Effect | None:
    """The column that has files of its own, or one that was added."""
    names = [name for name in party.fields if name == "z" or name.startswith("n")]
    if not names:
        return None
    name = names[party.change.slot % len(names)]
    number = party.fields[name]
    party.table.drop_columns([name])
    return lambda content, _: replace(
        content, fields={one: each for one, each in content.fields.items() if one != number}
    )


def replace_data(party: Party) -> Effect | None:
    """Another file for `z` in a fragment."""
    table = party.table
    fragments = table.get_fragments()
    if "z" not in party.fields or not fragments:
        return None
    fragment = fragments[party.change.fragment % len(fragments)]
    keys = fragment.to_table(columns=["a"])["a"].to_pylist()
    physical = fragment.metadata.physical_rows
    with party.giving():
        given = pa.table({"z": pa.array([-party.number] * physical, table.schema.field("z").type)})
        [made] = write_fragments(given, table, mode="append", session=party.session)
    operation = Op.DataReplacement([Op.DataReplacementGroup(fragment.fragment_id, made.files[0])])
    lance_io.LanceDataset.commit(table, operation, table.version, max_retries=RETRIES)
    return setting(keys, "z", lambda _: -party.number)


# -- calls: the table ------------------------------------------------------------------------------------------------


def overwrite(party: Party) -> Effect:
    """Rows 0 to 7 and no others; columns are those of a new table."""
    given = rows_of(BASE, range(8))
    party.table.insert(given, mode="overwrite")

    def effect(_: Content, made: Any) -> Content:
        ids = ids_of(made)
        assert ids.keys() == {*BASE.names}
        rows = {row["a"]: {ids[name]: value for name, value in row.items()} for row in given.to_pylist()}
        return Content({number: name for name, number in ids.items()}, rows)

    return effect


def restore(party: Party) -> Effect:
    version = 1 + (party.change.slot + party.change.fragment) % party.table.version
    if party.world.cleaned:
        version = party.table.version
    content = party.world.content_of(version)
    party.table.checkout_version(version).restore()
    return lambda _, __: content


def config(party: Party) -> Effect:
    party.table.update_config({f"k{party.number}": "v"})
    return nothing


def metadata(party: Party) -> Effect:
    party.table.update_schema_metadata({f"k{party.number}": "v"})
    return nothing


def add_index(party: Party) -> Effect | None:
    """An entry and a file, which nobody reads."""
    table, name, uuid = party.table, f"i{party.number}", str(uuid4())
    with party.giving():
        party.store.put_sync(f"t/_indices/{uuid}/page.lance", b"an index")
    covered = {one.fragment_id for one in table.get_fragments()}
    entry = lance_io.Index(uuid, name, [party.fields["b"]], table.version, covered, 0, index_details=DETAILS)
    lance_io.LanceDataset.commit(table, Op.CreateIndex([entry], []), table.version, max_retries=RETRIES)
    return nothing


def drop_index(party: Party) -> Effect | None:
    names = [one.name for one in party.table.describe_indices()]
    if not names:
        return None
    party.table.drop_index(names[0])
    return nothing


def clean(party: Party) -> Effect:
    """Only the newest version stays."""
    party.table.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    return nothing


CALLS: Final[dict[str, Call]] = {
    "append": append,
    "group-append": group_append,
    "commit-append": commit_append,
    "commit-batch": commit_batch,
    "detached": detached,
    "distributed": distributed,
    "delete": delete,
    "delete-two": delete_two,
    "delete-fragment": delete_fragment,
    "commit-delete": commit_delete,
    "truncate": truncate,
    "update": update,
    "update-two": update_two,
    "merge": merge,
    "insert-only": insert_only,
    "merge-delete": merge_delete,
    "patch": patch,
    "compact": compact,
    "compact-deferred": compact_deferred,
    "compact-steps": compact_steps,
    "add-null": add_null,
    "add-sql": add_sql,
    "add-function": add_function,
    "join": join,
    "cast": cast,
    "rename": rename,
    "require": require,
    "drop": drop,
    "replace-data": replace_data,
    "overwrite": overwrite,
    "restore": restore,
    "config": config,
    "metadata": metadata,
    "add-index": add_index,
    "drop-index": drop_index,
    "clean": clean,
}
IN_PLACE: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("patch", "replace-data", "add-null", "add-sql", "add-function", "join", "cast", "drop"), True),
    **dict.fromkeys(("overwrite", "restore")),
}
"""Calls that give other data files to fragments that stay, or do not go on from those of the version before."""
OF_SCHEMA: Final = frozenset(
    {"add-null", "add-sql", "add-function", "join", "cast", "rename", "require", "drop", "overwrite", "restore"}
)
"""Calls after which another one may not fit any more."""
BASE: Final = pa.schema(
    [("a", pa.int64()), ("b", pa.int32()), ("c", pa.string()), ("d", pa.int32()), ("z", pa.int64())]
)


def start(*, stable: bool, database: bool) -> ChainWorld:
    """The table that all begin with."""
    world = ChainWorld(CALLS, database=database)
    session = world.session()
    table = lance_io.write_dataset(
        rows_of(BASE, range(30)).drop_columns(["z"]),
        URI,
        max_rows_per_file=10,
        enable_stable_row_ids=stable,
        session=session,
    )
    table.add_columns({"z": "a"})
    uuid = str(uuid4())
    world.store.put_sync(f"t/_indices/{uuid}/page.lance", b"an index")
    entry = lance_io.Index(uuid, "b_idx", [ids_of(table)["b"]], 2, {0, 1, 2}, 0, index_details=DETAILS)
    lance_io.LanceDataset.commit(table, Op.CreateIndex([entry], []), 2)
    world.open().delete("a in (9, 29)")
    ids = ids_of(world.open())
    names, every = {number: name for name, number in ids.items()}, range(30)
    full = {key: {ids[one.name]: value_of(one.type, key) for one in BASE} for key in every}
    without = {number: name for number, name in names.items() if name != "z"}
    world.contents = {
        1: Content(without, full),
        2: Content(names, full),
        3: Content(names, full),
        4: Content(names, {key: full[key] for key in every if key not in (9, 29)}),
    }
    return world
