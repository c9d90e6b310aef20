"""Events of tables, passed to listeners as they happen: those of pylance's tracing, for `lance_io.tracing`.

Without listeners the overhead of an event is one look at an empty tuple.

    if trace_events.listeners:
        trace_events.emit_dataset("compacting", uri)

Values are texts, as in pylance. `docs/operations.md` lists the events.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lance_io.records import dataclass
from lance_io.redaction import shown_values
from lance_io.store.forking import survive_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

VERSION: Final = "0.1.0"
DATASET: Final = "lance::dataset_events"
FILES: Final = "lance::file_audit"
EXECUTION: Final = "lance::execution"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event.

    Attributes:
        target: Kind of event: "lance::dataset_events", "lance::file_audit" or "lance::execution".
        args: Values by name: always "timestamp" and "client_version"; "event" or "type", and values of that kind.
    """

    target: str
    args: dict[str, str]


Listener: TypeAlias = "Callable[[TraceEvent], object]"
listeners: tuple[Listener, ...] = ()


class _ForkHandler:
    """Removes listeners in a forked child: the threads that process their events exist in the parent only."""

    def start_over(self) -> None:
        global listeners
        listeners = ()


_fork_handler: Final = _ForkHandler()
survive_fork(_fork_handler)


def listen(listener: Listener) -> Callable[[], None]:
    """Register a listener, called with every event in the thread where it happens. Returns a function to remove it."""
    global listeners
    listeners = (*listeners, listener)

    def stop() -> None:
        global listeners
        listeners = tuple(each for each in listeners if each is not listener)

    return stop


def emit(target: str, values: dict[str, Any]) -> None:
    """Pass an event to the listeners."""
    args = shown_values(values)
    args["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    args["client_version"] = VERSION
    for listener in listeners:
        listener(TraceEvent(target, args))


def emit_dataset(event: str, uri: str, **values: Any) -> None:
    """Emit an event of a table."""
    emit(DATASET, {"event": event, "uri": uri.removeprefix("file://"), **values})


def emit_loading(uri: str, ref: Any, version: int | None) -> None:
    """Emit the event that a table was opened, or could not be.

    ref      the requested version: a number, a tag, branch and number, None for the newest version
    version  number of the opened version, None on failure
    """
    outcome = {"status": "error"} if version is None else {"status": "success", "version": version}
    emit_dataset("loading", uri, target_ref=_shown_ref(ref), **outcome)


def emit_commit(uri: str, operation: str, read_version: int, version: int, path: str, *, is_detached: bool) -> None:
    """Emit the events of a new manifest at `path` and of its version."""
    emit_files("create", "manifest", [path])
    emit_dataset(
        "committed",
        uri,
        operation=operation,
        read_version=read_version,
        committed_version=version,
        detached=str(is_detached).lower(),
    )


def emit_files(mode: str, kind: str, paths: Iterable[str]) -> None:
    """Emit events of files that were created or removed.

    mode  "create", "delete", or "delete_unverified" if no old version is known to have used the files
    """
    for path in paths:
        emit(FILES, {"mode": mode, "type": kind, "path": path.lstrip("/")})


def _shown_ref(ref: Any) -> str:
    if ref is None:
        return "None"
    if isinstance(ref, str):
        return f'Some(Tag("{ref}"))'
    if isinstance(ref, tuple):
        return f"Some(Version({', '.join(_shown_part(part) for part in ref)}))"
    return f"Some(VersionNumber({ref}))"


def _shown_part(part: Any) -> str:
    if part is None:
        return "None"
    return f'Some("{part}")' if isinstance(part, str) else f"Some({part})"
