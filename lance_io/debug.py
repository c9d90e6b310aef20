"""What a table says about itself, as text for people, under the module name that pylance gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.changes.operations.transaction_history import stored_transactions
from lance_io.reads.metadata.debug_text import (
    show_fragment_files,
    show_manifest,
    show_schema,
    show_transaction,
    write_debug,
)
from lance_io.reads.metadata.describe import stored_fragment
from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
from lance_io.reads.run_plan import run

if TYPE_CHECKING:
    from lance_io.dataset.fragment import LanceFragment
    from lance_io.dataset.lance_dataset import LanceDataset

__all__ = ["format_fragment", "format_manifest", "format_schema", "list_transactions"]


def format_schema(dataset: LanceDataset) -> str:
    """The schema of a table with its field ids."""
    return write_debug(show_schema(dataset._state.schema), pretty=True)


def format_manifest(dataset: LanceDataset) -> str:
    """All that the manifest of a table's version says."""
    return write_debug(show_manifest(dataset._state.manifest), pretty=True)


def format_fragment(fragment: FragmentMetadata | LanceFragment, dataset: LanceDataset) -> str:
    """A fragment of a table, with the fields that each of its files holds.

    fragment  a fragment of any table, or its metadata, which no version needs to name
    dataset   whose schema tells the fields

    Raises `UnsupportedError` for a data file of an unknown version.
    """
    if isinstance(fragment, FragmentMetadata):
        shown = stored_fragment(fragment)
    else:
        shown = fragment._state.manifest.fragments[fragment._place]
    return write_debug(show_fragment_files(shown, dataset._state.schema), pretty=True)


def list_transactions(dataset: LanceDataset, /, max_transactions: int = 10) -> list[str]:
    """What made the open version and those before it, newest first; a version without a record is passed over."""
    found = run(dataset._state, stored_transactions(dataset._state, max_transactions))
    return [write_debug(show_transaction(one), pretty=True) for one in found if one is not None]
