"""`log`: history of a dataset, version by version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.cli.output import progress, show
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    COMMIT_MESSAGE_KEY,
    Together,
    list_versions,
    read_manifest,
    recorded_transaction,
    run,
)
from lance_io.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import DatasetState, Fragment, Location, Plan, VersionFile

MOVES: Final = ("Rewrite",)  # operations that only copy rows to new fragments, without the deleted ones


@dataclass(frozen=True, slots=True)
class FragmentContent:
    """A fragment in one version: its rows without deleted ones (None if unknown), its data files."""

    num_rows: int | None
    files: frozenset[str]

    @classmethod
    def of(cls, fragment: Fragment) -> FragmentContent:
        """The content of a fragment."""
        return cls(fragment.num_rows, frozenset(file.path for file in fragment.files))


@dataclass(frozen=True, slots=True)
class Entry:
    """A version: its content by fragment id, and its operation, which is None if no transaction is stored."""

    version: int
    time: datetime
    writer: str
    contents: dict[int, FragmentContent]
    operation: str | None = None
    uuid: str | None = None
    message: str | None = None


def log(
    uri: str, limit: int, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool
) -> None:
    """Run `lance-io log`."""
    state = open_table(uri, version, tag, storage_option)
    with progress("reading versions"):
        entries = run(state, _entries(state, limit + 1))
    shown = [_report(entry, before) for entry, before in zip(entries, [*entries[1:], None], strict=True)]
    show({"versions": shown[:limit]}, as_json, _show)


def _entries(state: DatasetState, limit: int) -> Plan[list[Entry]]:
    """The open version and those before it, newest first."""
    location = state.location
    listed = yield from list_versions(location.store, location.path)
    files = [file for file in listed if file.version <= state.manifest.version]
    entries: list[Entry] = yield Together([_entry(location, file) for file in files[::-1][:limit]])
    return entries


def _entry(location: Location, file: VersionFile) -> Plan[Entry]:
    manifest, data = yield from read_manifest(location, file.key, file.version)
    entry = Entry(
        manifest.version,
        manifest.timestamp,
        manifest.writer,
        {fragment.id: FragmentContent.of(fragment) for fragment in manifest.fragments},
    )
    try:
        transaction = yield from recorded_transaction(location, file.key, manifest, data)
    except UnsupportedError:  # an operation that this release does not support; the manifest has its result
        return replace(entry, operation="unknown")
    if transaction is None:
        return entry
    message = transaction.properties.get(COMMIT_MESSAGE_KEY)
    return replace(entry, operation=transaction.name, uuid=transaction.uuid, message=message)


def _report(entry: Entry, before: Entry | None) -> dict[str, Any]:
    """An entry as plain values, with the rows added and removed since the version before if that still exists."""
    contents_before = before.contents if before is not None and before.version == entry.version - 1 else None
    if entry.version == 1:
        contents_before = {}
    added, removed = (None, None) if contents_before is None else changed_rows(contents_before, entry.contents)
    if entry.operation in MOVES and added is not None and removed is not None:
        added, removed = max(added - removed, 0), max(removed - added, 0)
    return {
        "version": entry.version,
        "timestamp": entry.time,
        "operation": entry.operation,
        "writer": entry.writer,
        "num_rows": total(content.num_rows for content in entry.contents.values()),
        "rows_added": added,
        "rows_removed": removed,
        "message": entry.message,
        "uuid": entry.uuid,
    }


def changed_rows(
    before: Mapping[int, FragmentContent], after: Mapping[int, FragmentContent]
) -> tuple[int | None, int | None]:
    """Rows added and removed between two versions; None if a manifest lacks the numbers.

    A fragment is in both versions if both have its id, with at least one data file in common. The id alone is not
    enough: an overwrite reuses ids.
    """
    same = {key for key, content in after.items() if key in before and content.files & before[key].files}
    added = [content.num_rows for key, content in after.items() if key not in same]
    removed = [content.num_rows for key, content in before.items() if key not in same]
    for key in same:
        old, new = before[key].num_rows, after[key].num_rows
        unknown = old is None or new is None
        removed.append(None if unknown else max((old or 0) - (new or 0), 0))
        added.append(None if unknown else max((new or 0) - (old or 0), 0))  # a restore brings rows back
    return total(added), total(removed)


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if a number is unknown."""
    terms = list(numbers)
    return None if None in terms else sum(number or 0 for number in terms)


def _show(report: dict[str, Any]) -> Shown:
    rows = [
        (
            version["version"],
            version["timestamp"],
            version["operation"] or "?",
            _with_sign("+", version["rows_added"]),
            _with_sign("-", version["rows_removed"]),
            version["num_rows"],
            version["writer"],
            version["message"],
        )
        for version in report["versions"]
    ]
    headers = [">version", "time (UTC)", "operation", ">added", ">removed", ">rows", "writer", "message"]
    return Table(headers, rows)


def _with_sign(sign: str, number: int | None) -> str:
    return "?" if number is None else f"{sign}{number:,}" if number else "0"
