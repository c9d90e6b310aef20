"""Opens the dataset or file of a URI, and runs computations on it, synchronously if its store allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lance_io.cli.option_texts import storage_options
from lance_io.dataset.cli_imports import (
    VERSIONS,
    List,
    ReadFile,
    Selection,
    SyncReads,
    open_location,
    open_options,
    open_steps,
    run_on,
    runtime,
)
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.dataset.cli_imports import DatasetState, FileSteps, Location, Plan, ReadContext

T = TypeVar("T")


def open_table(
    uri: str, version: int | None = None, tag: str | None = None, options: list[str] | None = None
) -> DatasetState:
    """The dataset at `uri` in the version of `version` or `tag`, the newest by default.

    options  `KEY=VALUE` texts for the store
    """
    if version is not None and tag is not None:
        raise UsageError("--version and --tag exclude each other")
    wanted = open_options(uri, version if tag is None else tag, storage_options=storage_options(options) or None)
    return run_on(wanted.location.store, open_steps(wanted))


def run_file(context: ReadContext, key: str, steps: FileSteps[T]) -> T:
    """Run a computation on one file and wait for it."""
    reading = ReadFile(context, key, steps)
    return reading.answer_sync() if isinstance(context.store, SyncReads) else runtime.run(reading.answer_async())


def locate(uri: str, options: Mapping[str, str]) -> tuple[Location, bool]:
    """The location of a URI, and whether there is a dataset (one listing)."""
    location, _ = open_location(uri, options)

    def has_versions() -> Plan[bool]:
        try:
            return bool((yield List(location.store, location.key(VERSIONS) + "/", Selection(limit=1))))
        except NotADirectoryError:  # a data file
            return False

    return location, run_on(location.store, has_versions())


def short_key(key: str, base: str) -> str:
    """A key relative to the folder of its table."""
    return key.removeprefix(base).lstrip("/")
