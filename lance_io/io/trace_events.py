"""What happens to tables, told as it happens: the events of pylance's tracing, for `lance_io.tracing`.

Nobody listens unless asked to: then whoever has something to tell looks at an empty tuple, and that is all.

    if trace_events.listeners:
        trace_events.tell_dataset("compacting", uri)

Values are texts, as in pylance. What is told: `docs/operations.md`.
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

    target  what kind it is of: "lance::dataset_events", "lance::file_audit" or "lance::execution"
    args    what there is to know, by name: "timestamp" and "client_version" always, "event" or "type" and its own
    """

    target: str
    args: dict[str, str]


Listener: TypeAlias = "Callable[[TraceEvent], object]"
listeners: tuple[Listener, ...] = ()


class _Forgetful:
    """Listeners stay with the parent of a forked process: the threads that they hand events to are there."""

    def start_over(self) -> None:
        global listeners
        listeners = ()


_forgetful: Final = _Forgetful()
survive_fork(_forgetful)


def listen(listener: Listener) -> Callable[[], None]:
    """Have `listener` called with every event from now on, in the thread where it happens; gives what ends that."""
    global listeners
    listeners = (*listeners, listener)

    def stop() -> None:
        global listeners
        listeners = tuple(one for one in listeners if one is not listener)

    return stop


def tell(target: str, values: dict[str, Any]) -> None:
    """Tell the listeners of an event."""
    args = shown_values(values)
    args["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    args["client_version"] = VERSION
    for listener in listeners:
        listener(TraceEvent(target, args))


def tell_dataset(event: str, uri: str, **values: Any) -> None:
    """Tell of something that happens to a table."""
    tell(DATASET, {"event": event, "uri": uri.removeprefix("file://"), **values})


def tell_loading(uri: str, ref: Any, version: int | None) -> None:
    """Tell of a table that was opened, or could not be.

    ref      what was asked for: a number, a tag, branch and number, None for the newest version
    version  what came, None where that failed
    """
    found = {"status": "error"} if version is None else {"status": "success", "version": version}
    tell_dataset("loading", uri, target_ref=_shown_ref(ref), **found)


def tell_commit(uri: str, operation: str, read_version: int, version: int, path: str, *, is_detached: bool) -> None:
    """Tell of a manifest at `path`, and of the version that it is."""
    tell_files("create", "manifest", [path])
    tell_dataset(
        "committed",
        uri,
        operation=operation,
        read_version=read_version,
        committed_version=version,
        detached=str(is_detached).lower(),
    )


def tell_files(mode: str, kind: str, paths: Iterable[str]) -> None:
    """Tell of files that were made ("create") or removed ("delete", and "delete_unverified" without proof of use)."""
    for path in paths:
        tell(FILES, {"mode": mode, "type": kind, "path": path.lstrip("/")})


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
