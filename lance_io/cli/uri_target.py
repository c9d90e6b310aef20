"""Opening what a URI names, and running computations on it in whichever way its store answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lance_io.cli.option_texts import storage_options
from lance_io.dataset.command_door import (
    VERSIONS,
    List,
    ReadFile,
    Selection,
    SyncReads,
    open_options,
    open_place,
    open_steps,
    run_on,
    runtime,
)
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.dataset.command_door import DatasetState, FileSteps, Location, Plan, ReadContext

T = TypeVar("T")


def open_table(
    uri: str, version: int | None = None, tag: str | None = None, options: list[str] | None = None
) -> DatasetState:
    """The version of the dataset at `uri` that version or tag name, the newest by default.

    options  `KEY=VALUE` texts for the store
    """
    if version is not None and tag is not None:
        raise UsageError("--version and --tag name one version each: give one of them")
    wanted = open_options(uri, version if tag is None else tag, storage_options=storage_options(options) or None)
    return run_on(wanted.location.store, open_steps(wanted))


def run_file(context: ReadContext, key: str, steps: FileSteps[T]) -> T:
    """Run a computation on one file and wait for it."""
    reading = ReadFile(context, key, steps)
    return reading.answer_sync() if isinstance(context.store, SyncReads) else runtime.run(reading.answer_async())


def locate(uri: str, options: Mapping[str, str]) -> tuple[Location, bool]:
    """The place that a URI names, and whether a dataset lies there (one listing)."""
    location, _ = open_place(uri, options)

    def found() -> Plan[bool]:
        try:
            return bool((yield List(location.store, location.key(VERSIONS) + "/", Selection(limit=1))))
        except NotADirectoryError:  # a data file
            return False

    return location, run_on(location.store, found())


def short_key(key: str, base: str) -> str:
    """A key without the folder of its table."""
    return key.removeprefix(base).lstrip("/")
