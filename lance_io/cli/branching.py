"""`branch`, `clone`, `diff`: lines of versions, copies, and what is different between two versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lance_io.cli.option_texts import storage_options
from lance_io.cli.output import progress, show
from lance_io.cli.tables import Pairs, Table
from lance_io.cli.uri_target import open_table
from lance_io.cli.version_log import Holding, changed_rows
from lance_io.dataset.command_door import (
    CREATED_AT,
    UPDATED_AT,
    change_branches,
    check_out,
    clone_tables,
    count,
    list_branches,
    new_dataset,
    offers_sync_writes,
    run,
    run_sync,
    scan_options,
)
from lance_io.errors import NotFound

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown
    from lance_io.dataset.command_door import DatasetState


# -- branch ----------------------------------------------------------------------------------------------------------


def branch(
    uri: str,
    action: str,
    name: str | None,
    version: int | None,
    tag: str | None,
    of: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io branch`."""
    state = open_table(uri, options=storage_option)
    if name is None:
        show(_branches(state), as_json, _show_branches)
        return
    if action == "delete":
        with progress("deleting"):
            run(state, change_branches.delete_branch(state, name))
        show({"action": action, "branch": name, "version": None}, as_json, _show_branch_change)
        return
    reference = tag if tag is not None else (of, version)
    made = run(state, change_branches.create_branch(state, name, reference))
    report = {"action": action, "branch": name, "version": made.manifest.version, "uri": made.location.uri}
    show(report, as_json, _show_branch_change)


def _branches(state: DatasetState) -> dict[str, Any]:
    found = run(state, list_branches(state))
    branches = []
    for name, entry in found.items():
        try:
            newest: int | None = run(state, check_out(state, (name, None))).manifest.version
        except NotFound:  # it is being deleted
            newest = None
        made = datetime.fromtimestamp(entry["create_at"], UTC).replace(tzinfo=None)
        branches.append({"name": name, **entry, "create_at": made, "newest_version": newest})
    return {"branches": branches}


def _show_branches(report: dict[str, Any]) -> Shown:
    rows = [
        (one["name"], one["newest_version"], one["parent_branch"] or "main", one["parent_version"], one["create_at"])
        for one in report["branches"]
    ]
    columns = ["branch", ">newest version", "left", ">at version", "created (UTC)"]
    return Table(columns, rows) if rows else "no branches"


def _show_branch_change(report: dict[str, Any]) -> Shown:
    if report["action"] == "delete":
        return f"branch {report['branch']} is gone"
    return f"branch {report['branch']} begins with version {report['version']}: {report['uri']}"


# -- clone -----------------------------------------------------------------------------------------------------------


def clone(
    uri: str,
    target: str,
    deep: bool,
    version: int | None,
    tag: str | None,
    storage_option: list[str] | None,
    target_storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io clone`."""
    state = open_table(uri, version, tag, storage_option)
    given = storage_options(target_storage_option) or storage_options(storage_option)
    place = state.session.locate(target, given)
    make = clone_tables.deep_clone if deep else clone_tables.shallow_clone
    with progress("copying" if deep else "cloning"):
        run_sync(make(state, place, None), answers_sync=state.answers_sync and offers_sync_writes(place.store))
    report = {"uri": target, "source": uri, "version": state.manifest.version, "deep": deep}
    show(report, as_json, _show_clone)


def _show_clone(report: dict[str, Any]) -> Shown:
    made = f"{report['uri']}: version {report['version']} of {report['source']}"
    if report["deep"]:
        return f"{made}, with all of its files"
    return [
        f"{made}, whose files stay there",
        "A cleanup there that removes this version takes them: tag it to keep it.",
    ]


# -- diff ------------------------------------------------------------------------------------------------------------


def diff(uri: str, begin: int, end: int | None, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io diff`."""
    after = open_table(uri, end, options=storage_option)
    with progress("comparing"):
        before = run(after, check_out(after, begin))
        report = {
            "begin_version": begin,
            "end_version": after.manifest.version,
            **_schema_changes(before, after),
            **_fragment_changes(before, after),
            **_row_changes(before, after),
        }
    show(report, as_json, _show_diff)


def _schema_changes(before: DatasetState, after: DatasetState) -> dict[str, Any]:
    """Columns by field id, which a rename keeps."""
    old = {one.id: one for one in before.schema.fields}
    new = {one.id: one for one in after.schema.fields}
    types = [{name: str(field.type) for name, field in _fields(state).items()} for state in (before, after)]
    renamed = [(old[one].name, new[one].name) for one in old if one in new and old[one].name != new[one].name]
    moved = {name for pair in renamed for name in pair}
    kept = types[0].keys() & types[1].keys() - moved
    return {
        "columns_added": [name for name in types[1] if name not in types[0] and name not in moved],
        "columns_dropped": [name for name in types[0] if name not in types[1] and name not in moved],
        "columns_renamed": [list(pair) for pair in renamed],
        "columns_retyped": [[name, types[0][name], types[1][name]] for name in types[1] if _differs(types, name, kept)],
    }


def _differs(types: list[dict[str, str]], name: str, kept: Any) -> bool:
    return name in kept and types[0][name] != types[1][name]


def _fields(state: DatasetState) -> dict[str, Any]:
    return {field.name: field for field in state.arrow_schema}


def _fragment_changes(before: DatasetState, after: DatasetState) -> dict[str, Any]:
    came, went = changed_rows(_holdings(before), _holdings(after))
    ids = set(before.fragment_ids), set(after.fragment_ids)
    return {
        "num_rows_before": _total(before),
        "num_rows_after": _total(after),
        "fragments_added": len(ids[1] - ids[0]),
        "fragments_removed": len(ids[0] - ids[1]),
        "rows_in_new_places": came,
        "rows_gone_from_old_places": went,
    }


def _holdings(state: DatasetState) -> dict[int, Holding]:
    return {
        one.id: Holding(one.num_rows, frozenset(each.path for each in one.files)) for one in state.manifest.fragments
    }


def _total(state: DatasetState) -> int:
    return count(state, scan_options())


def _row_changes(before: DatasetState, after: DatasetState) -> dict[str, Any]:
    """Rows by their stable ids; None where a table has none."""
    names = ("rows_inserted", "rows_updated", "rows_deleted")
    if not (before.has_stable_row_ids and after.has_stable_row_ids):
        return dict.fromkeys(names)
    begin, end = before.manifest.version, after.manifest.version
    inserted = count(after, scan_options(filter=f"{CREATED_AT} > {begin} AND {CREATED_AT} <= {end}"))
    changed = f"{CREATED_AT} <= {begin} AND {UPDATED_AT} > {begin} AND {UPDATED_AT} <= {end}"
    deleted = new_dataset(after).delta(begin_version=begin, end_version=end).get_deleted_row_ids()
    num_deleted = sum(batch.num_rows for batch in deleted)
    return dict(zip(names, (inserted, count(after, scan_options(filter=changed)), num_deleted), strict=True))


def _show_diff(report: dict[str, Any]) -> Shown:
    knows_rows = report["rows_inserted"] is not None
    renamed = ", ".join(f"{old} -> {new}" for old, new in report["columns_renamed"])
    retyped = ", ".join(f"{name}: {old} -> {new}" for name, old, new in report["columns_retyped"])
    pairs = {
        "versions": f"{report['begin_version']} to {report['end_version']}",
        "rows": f"{report['num_rows_before']:,} -> {report['num_rows_after']:,}",
        "inserted": report["rows_inserted"],
        "updated": report["rows_updated"],
        "deleted": report["rows_deleted"],
        "in new places": None if knows_rows else report["rows_in_new_places"],
        "gone from old places": None if knows_rows else report["rows_gone_from_old_places"],
        "fragments": f"{report['fragments_added']:,} new, {report['fragments_removed']:,} gone",
        "columns added": ", ".join(report["columns_added"]) or None,
        "columns dropped": ", ".join(report["columns_dropped"]) or None,
        "columns renamed": renamed or None,
        "types changed": retyped or None,
    }
    shown: list[Shown] = [Pairs(pairs)]
    if not knows_rows:
        shown.append("Without stable row ids nobody can tell an update from a deletion and an insertion.")
    return shown
