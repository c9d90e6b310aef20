"""`delete`, `restore`, `cleanup`: what changes a dataset without adding rows."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_io.cli.options import DatasetUri, Json, StorageOptions, Tag, Version
from lance_io.cli.output import group, is_terminal, progress, show, table
from lance_io.cli.target import change, open_table
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from rich.console import RenderableType

    from lance_io.dataset.version.state import DatasetState

FILES_SHOWN_MAX = 20
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def somebody_answers() -> bool:
    """Whether a question would be read by a person."""
    return is_terminal(sys.stdin)


# -- delete ----------------------------------------------------------------------------------------------------------


def delete(
    uri: DatasetUri,
    predicate: Annotated[str, typer.Argument(metavar="PREDICATE", help="Such as \"price > 40 AND drink = 'mate'\".")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, delete nothing.")] = False,
    yes: Yes = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Delete the rows that pass a filter, as a new version; older versions keep them.

    On a terminal, tells how many rows these are and asks.
    """
    from lance_io.dataset.changes.change_methods import CONFLICT_RETRIES, RETRY_TIMEOUT
    from lance_io.dataset.changes.change_plans import delete_rows

    state = open_table(uri, options=storage_option)
    if dry_run:
        num_rows = _count(state, predicate)
        report = {"version": state.manifest.version, "num_deleted_rows": 0, "num_matching_rows": num_rows}
        show(report, as_json, _show_delete)
        return
    if not yes and somebody_answers():
        num_rows = _count(state, predicate)
        typer.confirm(f"Delete {num_rows:,} rows of {uri}?", abort=True, err=True)
    with progress("deleting"):
        plan = delete_rows(state, predicate, CONFLICT_RETRIES, RETRY_TIMEOUT.total_seconds())
        after, num_deleted = change(state, plan)
    report = {"version": after.manifest.version, "num_deleted_rows": num_deleted, "num_matching_rows": num_deleted}
    show(report, as_json, _show_delete)


def _count(state: "DatasetState", predicate: str) -> int:
    from lance_io.dataset.scan.execute import count
    from lance_io.dataset.scan.scan_options import scan_options

    with progress("counting"):
        return count(state, scan_options(filter=predicate))


def _show_delete(report: dict[str, Any]) -> "RenderableType":
    if report["num_deleted_rows"] != report["num_matching_rows"]:
        return f"{report['num_matching_rows']:,} rows would be deleted"
    return f"version {report['version']}: {report['num_deleted_rows']:,} rows deleted"


# -- restore ---------------------------------------------------------------------------------------------------------


def restore(
    uri: DatasetUri,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Make an older version, named by --version or --tag, the newest again, as a new version."""
    from lance_io.dataset.changes.change_plans import restore as restore_version

    if version is None and tag is None:
        raise UsageError("restore needs --version or --tag: which version is to be the newest again")
    state = open_table(uri, version, tag, storage_option)
    with progress("restoring"):
        after = change(state, restore_version(state))
    report = {"version": after.manifest.version, "restored_version": state.manifest.version}
    show(report, as_json, lambda one: f"version {one['version']}: what version {one['restored_version']} was")


# -- cleanup ---------------------------------------------------------------------------------------------------------


def cleanup(
    uri: DatasetUri,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Versions older than this, such as 14d or 12h.")
    ] = None,
    retain_versions: Annotated[
        int | None, typer.Option("--retain-versions", min=1, help="All but the last so many versions.")
    ] = None,
    delete_unverified: Annotated[
        bool,
        typer.Option(
            "--delete-unverified",
            help="Also files younger than 7 days that no version refers to. Only when nobody is writing.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go; so it is without --yes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Remove old versions and files that no version refers to. Without --yes, show what would go.

    Without --older-than and --retain-versions: versions older than two weeks. The newest version stays, and so do
    those younger than ten minutes unless --older-than is 0s, and whatever tags and branches refer to.
    """
    from lance_io.dataset.changes.remove_versions import cleanup_policy

    if dry_run and yes:
        raise UsageError("--dry-run and --yes contradict each other")
    policy = cleanup_policy(
        None if older_than is None else _age(older_than),
        retain_versions,
        delete_unverified=delete_unverified,
        error_if_tagged=False,
        versions=None,
    )
    state = open_table(uri, options=storage_option)
    with progress("looking at versions and files" if not yes else "cleaning up"):
        report = _clean_up(state, policy) if yes else _explain(state, policy)
    show(report, as_json, _show_cleanup)


def _age(text: str) -> "timedelta":
    """A duration; `UsageError` for one that reaches back before the first year."""
    from datetime import UTC, datetime, timedelta

    from lance_io.table.transaction.auto_cleanup import duration_s

    try:
        age = timedelta(seconds=duration_s(text))
        datetime.now(UTC) - age  # what versions are compared with
    except OverflowError:
        raise UsageError(f"--older-than {text[:100]}: nothing is as old as that") from None
    return age


def _clean_up(state: "DatasetState", policy: Any) -> dict[str, Any]:
    from dataclasses import asdict

    from lance_io.dataset.changes.remove_versions import clean_up

    return {"done": True, **asdict(change(state, clean_up(state, policy)))}


def _explain(state: "DatasetState", policy: Any) -> dict[str, Any]:
    from dataclasses import asdict

    from lance_io.dataset.changes.remove_versions import explain_cleanup
    from lance_io.limits import CLEANUP_FILES_SHOWN

    found = change(state, explain_cleanup(state, policy, include_files=True, max_files=CLEANUP_FILES_SHOWN))
    return {
        "done": False,
        **asdict(found.stats),
        "files": found.candidate_files,
        "files_truncated": found.candidate_files_truncated,
        "warnings": found.warnings,
    }


def _show_cleanup(report: dict[str, Any]) -> "RenderableType":
    from lance_io.dataset.changes.remove_versions import young_versions_note
    from lance_io.dataset.scan.io_plan import format_bytes

    verb = "removed" if report["done"] else "would go"
    kinds = ("old_versions", "data_files_removed", "deletion_files_removed", "index_files_removed")
    names = ("versions", "data files", "deletion files", "index files")
    rows: list[tuple[object, ...]] = [(name, report[kind]) for name, kind in zip(names, kinds, strict=True)]
    rows += [("transaction files", report["transaction_files_removed"])]
    rows += [("bytes", format_bytes(report["bytes_removed"]))]
    parts: list[RenderableType | str] = [table(["", f">{verb}"], rows)]
    if report["done"]:
        if report["young_versions_kept"]:
            parts.append(young_versions_note(report["young_versions_kept"]))
        if report["failed_deletes"]:
            parts.append(f"{report['failed_deletes']:,} files could not be removed; a later cleanup removes them")
        return group(*parts)
    files = report["files"]
    parts += files[:FILES_SHOWN_MAX]
    if len(files) > FILES_SHOWN_MAX:
        parts.append(f"... and {len(files) - FILES_SHOWN_MAX:,} more (--json shows {len(files):,})")
    parts += report["warnings"]
    parts.append("nothing was removed: --yes does it" if files else "nothing to remove")
    return group(*parts)
