"""`log`: how a dataset came to be, version by version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.cli.output import progress, show
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import open_table
from lance_io.dataset.command_door import (
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
    from lance_io.dataset.command_door import DatasetState, Location, Plan, VersionFile

SAME_ROWS: Final = ("Rewrite",)  # operations that put rows into other fragments and leave out deleted ones only


@dataclass(frozen=True, slots=True)
class Holding:
    """What a version holds of a fragment: its rows without deleted ones (None when unknown), its data files."""

    num_rows: int | None
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """A version: what it holds by fragment id, and how it was made; None where no record of that is left."""

    version: int
    time: datetime
    writer: str
    holdings: dict[int, Holding]
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
    """The version that is open and those before it, newest first."""
    location = state.location
    listed = yield from list_versions(location.store, location.path)
    files = [file for file in listed if file.version <= state.manifest.version]
    found: list[Entry] = yield Together([_entry(location, file) for file in files[::-1][:limit]])
    return found


def _entry(location: Location, file: VersionFile) -> Plan[Entry]:
    manifest, data = yield from read_manifest(location, file.key, file.version)
    made = Entry(
        manifest.version,
        manifest.timestamp,
        manifest.writer,
        {one.id: Holding(one.num_rows, frozenset(each.path for each in one.files)) for one in manifest.fragments},
    )
    try:
        transaction = yield from recorded_transaction(location, file.key, manifest, data)
    except UnsupportedError:  # of a kind that this release does not know; what came of it is in the manifest
        return replace(made, operation="unknown")
    if transaction is None:
        return made
    message = transaction.properties.get(COMMIT_MESSAGE_KEY)
    return replace(made, operation=transaction.name, uuid=transaction.uuid, message=message)


def _report(entry: Entry, before: Entry | None) -> dict[str, Any]:
    """An entry in plain values, compared with the version before, if that is still there."""
    known = before.holdings if before is not None and before.version == entry.version - 1 else None
    if entry.version == 1:
        known = {}
    added, removed = (None, None) if known is None else changed_rows(known, entry.holdings)
    if entry.operation in SAME_ROWS and added is not None and removed is not None:
        added, removed = max(added - removed, 0), max(removed - added, 0)
    return {
        "version": entry.version,
        "timestamp": entry.time,
        "operation": entry.operation,
        "writer": entry.writer,
        "num_rows": total(one.num_rows for one in entry.holdings.values()),
        "rows_added": added,
        "rows_removed": removed,
        "message": entry.message,
        "uuid": entry.uuid,
    }


def changed_rows(before: Mapping[int, Holding], after: Mapping[int, Holding]) -> tuple[int | None, int | None]:
    """Rows that came and rows that went between two versions; None where a manifest does not say.

    A fragment is the same one if it has its id and any of its data files: overwriting uses ids again.
    """
    same = {key for key, one in after.items() if key in before and one.files & before[key].files}
    came = [one.num_rows for key, one in after.items() if key not in same]
    went = [one.num_rows for key, one in before.items() if key not in same]
    for key in same:
        old, new = before[key].num_rows, after[key].num_rows
        unknown = old is None or new is None
        went.append(None if unknown else max((old or 0) - (new or 0), 0))
        came.append(None if unknown else max((new or 0) - (old or 0), 0))  # a restored version
    return total(came), total(went)


def total(numbers: Iterable[int | None]) -> int | None:
    """Their sum, None if one of them is not known."""
    found = list(numbers)
    return None if None in found else sum(number or 0 for number in found)


def _show(report: dict[str, Any]) -> Shown:
    rows = [
        (
            one["version"],
            one["timestamp"],
            one["operation"] or "?",
            _with_sign("+", one["rows_added"]),
            _with_sign("-", one["rows_removed"]),
            one["num_rows"],
            one["writer"],
            one["message"],
        )
        for one in report["versions"]
    ]
    headers = [">version", "time (UTC)", "operation", ">added", ">removed", ">rows", "writer", "message"]
    return Table(headers, rows)


def _with_sign(sign: str, number: int | None) -> str:
    return "?" if number is None else f"{sign}{number:,}" if number else "0"
