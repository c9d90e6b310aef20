"""`branch`, `clone`, `diff`: branches, clones, and differences between two versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lance_io.cli.option_texts import storage_options
from lance_io.cli.output import progress, show
from lance_io.cli.tables import Pairs, Table
from lance_io.cli.uri_target import open_table
from lance_io.cli.version_log import FragmentContent, changed_rows
from lance_io.dataset.cli_imports import (
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
    from lance_io.dataset.cli_imports import DatasetState


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
    created = run(state, change_branches.create_branch(state, name, reference))
    report = {"action": action, "branch": name, "version": created.manifest.version, "uri": created.location.uri}
    show(report, as_json, _show_branch_change)


def _branches(state: DatasetState) -> dict[str, Any]:
    listed = run(state, list_branches(state))
    branches = []
    for name, entry in listed.items():
        try:
            newest: int | None = run(state, check_out(state, (name, None))).manifest.version
        except NotFound:  # it is being deleted
            newest = None
        created_at = datetime.fromtimestamp(entry["create_at"], UTC).replace(tzinfo=None)
        branches.append({"name": name, **entry, "create_at": created_at, "newest_version": newest})
    return {"branches": branches}


def _show_branches(report: dict[str, Any]) -> Shown:
    rows = [
        (
            branch["name"],
            branch["newest_version"],
            branch["parent_branch"] or "main",
            branch["parent_version"],
            branch["create_at"],
        )
        for branch in report["branches"]
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
    target_location = state.session.locate(target, given)
    make = clone_tables.deep_clone if deep else clone_tables.shallow_clone
    with progress("copying" if deep else "cloning"):
        run_sync(
            make(state, target_location, None),
            answers_sync=state.answers_sync and offers_sync_writes(target_location.store),
        )
    report = {"uri": target, "source": uri, "version": state.manifest.version, "deep": deep}
    show(report, as_json, _show_clone)


def _show_clone(report: dict[str, Any]) -> Shown:
    summary = f"{report['uri']}: version {report['version']} of {report['source']}"
    if report["deep"]:
        return f"{summary}, with all of its files"
    return [
        f"{summary}, whose files stay there",
        "A cleanup of the source that removes this version removes these files: tag it to keep them.",
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
    """Changes of columns, matched by field id, which a rename keeps."""
    old = {field.id: field for field in before.schema.fields}
    new = {field.id: field for field in after.schema.fields}
    types = [{name: str(field.type) for name, field in _fields(state).items()} for state in (before, after)]
    renamed = [(old[key].name, new[key].name) for key in old if key in new and old[key].name != new[key].name]
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
    added, removed = changed_rows(_contents(before), _contents(after))
    ids = set(before.fragment_ids), set(after.fragment_ids)
    return {
        "num_rows_before": _total(before),
        "num_rows_after": _total(after),
        "fragments_added": len(ids[1] - ids[0]),
        "fragments_removed": len(ids[0] - ids[1]),
        "rows_in_new_places": added,
        "rows_gone_from_old_places": removed,
    }


def _contents(state: DatasetState) -> dict[int, FragmentContent]:
    return {fragment.id: FragmentContent.of(fragment) for fragment in state.manifest.fragments}


def _total(state: DatasetState) -> int:
    return count(state, scan_options())


def _row_changes(before: DatasetState, after: DatasetState) -> dict[str, Any]:
    """Changes of rows, by their stable ids; None for a table without them."""
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
    has_row_counts = report["rows_inserted"] is not None
    renamed = ", ".join(f"{old} -> {new}" for old, new in report["columns_renamed"])
    retyped = ", ".join(f"{name}: {old} -> {new}" for name, old, new in report["columns_retyped"])
    pairs = {
        "versions": f"{report['begin_version']} to {report['end_version']}",
        "rows": f"{report['num_rows_before']:,} -> {report['num_rows_after']:,}",
        "inserted": report["rows_inserted"],
        "updated": report["rows_updated"],
        "deleted": report["rows_deleted"],
        "in new places": None if has_row_counts else report["rows_in_new_places"],
        "gone from old places": None if has_row_counts else report["rows_gone_from_old_places"],
        "fragments": f"{report['fragments_added']:,} new, {report['fragments_removed']:,} gone",
        "columns added": ", ".join(report["columns_added"]) or None,
        "columns dropped": ", ".join(report["columns_dropped"]) or None,
        "columns renamed": renamed or None,
        "types changed": retyped or None,
    }
    shown: list[Shown] = [Pairs(pairs)]
    if not has_row_counts:
        shown.append("Without stable row ids an update looks like a deletion and an insertion.")
    return shown
