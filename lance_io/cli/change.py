"""`delete`, `restore`, `tag`, `cleanup`: changes of a dataset without new rows."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

from lance_io.cli.output import progress, show
from lance_io.cli.tables import Table, is_terminal
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    CONFLICT_RETRIES,
    RETRY_TIMEOUT,
    change_plans,
    count,
    create_tag,
    delete_tag,
    duration_s,
    format_bytes,
    list_tags,
    remove_versions,
    run,
    scan_options,
    tag_of,
    update_tag,
)
from lance_io.errors import UsageError
from lance_io.limits import CLEANUP_FILES_SHOWN

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import DatasetState

FILES_SHOWN_MAX = 20


def is_interactive() -> bool:
    """Whether a person can answer a question."""
    return is_terminal(sys.stdin)


# -- delete ----------------------------------------------------------------------------------------------------------


def delete(uri: str, predicate: str, dry_run: bool, yes: bool, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io delete`."""
    state = open_table(uri, options=storage_option)
    if dry_run:
        num_rows = count_matching(state, predicate)
        report = {"version": state.manifest.version, "num_deleted_rows": 0, "num_matching_rows": num_rows}
        show(report, as_json, _show_delete)
        return
    if not yes and is_interactive():
        num_rows = count_matching(state, predicate)
        typer.confirm(f"Delete {num_rows:,} rows of {uri}?", abort=True, err=True)
    with progress("deleting"):
        after, done = run(state, change_plans.delete_rows(state, predicate, CONFLICT_RETRIES, RETRY_TIMEOUT))
    num_deleted = done["num_deleted_rows"]
    report = {"version": after.manifest.version, "num_deleted_rows": num_deleted, "num_matching_rows": num_deleted}
    show(report, as_json, _show_delete)


def count_matching(state: DatasetState, predicate: str | None) -> int:
    """Number of rows that match a filter; None for all rows."""
    with progress("counting"):
        return count(state, scan_options(filter=predicate))


def _show_delete(report: dict[str, Any]) -> Shown:
    if report["num_deleted_rows"] != report["num_matching_rows"]:
        return f"{report['num_matching_rows']:,} rows would be deleted"
    return f"version {report['version']}: {report['num_deleted_rows']:,} rows deleted"


# -- restore ---------------------------------------------------------------------------------------------------------


def restore(uri: str, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io restore`."""
    state = open_table(uri, version, tag, storage_option)
    with progress("restoring"):
        after = run(state, change_plans.restore(state))
    report = {"version": after.manifest.version, "restored_version": state.manifest.version}
    show(report, as_json, lambda done: f"version {done['version']}: what version {done['restored_version']} was")


# -- tag -------------------------------------------------------------------------------------------------------------


def tag(
    uri: str, action: str, name: str | None, version: int | None, storage_option: list[str] | None, as_json: bool
) -> None:
    """Run `lance-io tag`."""
    state = open_table(uri, options=storage_option)
    if name is None:
        show(_tags(state), as_json, _show_tags)
    else:
        show(_change_tag(state, action, name, version), as_json, _show_tag_change)


def _tags(state: DatasetState) -> dict[str, Any]:
    return {"tags": [{"name": name, **entry} for name, entry in run(state, list_tags(state)).items()]}


def _change_tag(state: DatasetState, action: str, name: str, version: int | None) -> dict[str, Any]:
    if action == "delete":
        named: int | None = run(state, tag_of(state.root, name)).version
        run(state, delete_tag(state, name))
    else:
        named = state.manifest.version if version is None else version
        run(state, (create_tag if action == "create" else update_tag)(state, name, named))
    return {"action": action, "tag": name, "version": named}


def _show_tags(report: dict[str, Any]) -> Shown:
    rows = [
        (tag["name"], tag["version"], tag["branch"], tag["created_at"], tag["updated_at"]) for tag in report["tags"]
    ]
    return Table(["tag", ">version", "branch", "created (UTC)", "updated (UTC)"], rows) if rows else "no tags"


def _show_tag_change(report: dict[str, Any]) -> Shown:
    done = {"create": "names", "update": "now names", "delete": "is gone; it named"}[report["action"]]
    return f"tag {report['tag']} {done} version {report['version']}"


# -- cleanup ---------------------------------------------------------------------------------------------------------


def cleanup(
    uri: str,
    older_than: str | None,
    retain_versions: int | None,
    delete_unverified: bool,
    dry_run: bool,
    yes: bool,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io cleanup`; without `yes` it is a dry run."""
    rules = {
        "older_than": None if older_than is None else _age(older_than),
        "retain_versions": retain_versions,
        "delete_unverified": delete_unverified,
        "error_if_tagged": False,
        "versions": None,
    }
    state = open_table(uri, options=storage_option)
    with progress("looking at versions and files" if not yes else "cleaning up"):
        report = _clean_up(state, rules) if yes else _explain(state, rules)
    show(report, as_json, _show_cleanup)


def _age(text: str) -> timedelta:
    """A duration; `UsageError` for one that reaches back before the year 1."""
    try:
        age = timedelta(seconds=duration_s(text))
        datetime.now(UTC) - age  # the bound for versions
    except OverflowError:
        raise UsageError(f"--older-than {text[:100]}: nothing is as old as that") from None
    return age


def _clean_up(state: DatasetState, rules: dict[str, Any]) -> dict[str, Any]:
    return {"done": True, **asdict(run(state, remove_versions.clean_up(state, None, **rules)))}


def _explain(state: DatasetState, rules: dict[str, Any]) -> dict[str, Any]:
    plan = remove_versions.explain_cleanup(state, include_files=True, max_files=CLEANUP_FILES_SHOWN, **rules)
    explanation = run(state, plan)
    return {
        "done": False,
        **asdict(explanation.stats),
        "files": explanation.candidate_files,
        "files_truncated": explanation.candidate_files_truncated,
        "warnings": explanation.warnings,
    }


def _show_cleanup(report: dict[str, Any]) -> Shown:
    verb = "removed" if report["done"] else "would go"
    kinds = ("old_versions", "data_files_removed", "deletion_files_removed", "index_files_removed")
    names = ("versions", "data files", "deletion files", "index files")
    rows: list[tuple[object, ...]] = [(name, report[kind]) for name, kind in zip(names, kinds, strict=True)]
    rows += [("transaction files", report["transaction_files_removed"])]
    rows += [("bytes", format_bytes(report["bytes_removed"]))]
    parts: list[Shown] = [Table(["", f">{verb}"], rows)]
    if report["done"]:
        if report["young_versions_kept"]:
            parts.append(remove_versions.young_versions_note(report["young_versions_kept"]))
        if report["failed_deletes"]:
            parts.append(f"{report['failed_deletes']:,} files could not be removed; a later cleanup removes them")
        return parts
    files = report["files"]
    parts += files[:FILES_SHOWN_MAX]
    if len(files) > FILES_SHOWN_MAX:
        parts.append(f"... and {len(files) - FILES_SHOWN_MAX:,} more (--json shows {len(files):,})")
    parts += report["warnings"]
    parts.append("nothing was removed: --yes does it" if files else "nothing to remove")
    return parts
