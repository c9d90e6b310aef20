"""Metadata of a table as readable text. Module and names are those of pylance."""

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
    """Format the schema of a table, with field ids.

    Args:
        dataset: The table, at its open version.

    Returns:
        The schema as text.
    """
    return write_debug(show_schema(dataset._state.schema), pretty=True)


def format_manifest(dataset: LanceDataset) -> str:
    """Format the whole manifest of a table's version.

    Args:
        dataset: The table, at its open version.

    Returns:
        The manifest as text.
    """
    return write_debug(show_manifest(dataset._state.manifest), pretty=True)


def format_fragment(fragment: FragmentMetadata | LanceFragment, dataset: LanceDataset) -> str:
    """Format a fragment, with the fields of each of its files.

    Args:
        fragment: A fragment of any table, or its metadata; need not be part of a version.
        dataset: The table whose schema names the fields.

    Returns:
        The fragment as text.

    Raises:
        UnsupportedError: A data file has an unknown version.
    """
    if isinstance(fragment, FragmentMetadata):
        shown = stored_fragment(fragment)
    else:
        shown = fragment._state.manifest.fragments[fragment._fragment_index]
    return write_debug(show_fragment_files(shown, dataset._state.schema), pretty=True)


def list_transactions(dataset: LanceDataset, /, max_transactions: int = 10) -> list[str]:
    """Format the transactions of the open version and earlier ones, newest first.

    Args:
        dataset: The table, at its open version.
        max_transactions: Maximum number of versions to look at.

    Returns:
        Each transaction as text; skips versions without a recorded transaction.
    """
    transactions = run(dataset._state, stored_transactions(dataset._state, max_transactions))
    return [
        write_debug(show_transaction(transaction), pretty=True)
        for transaction in transactions
        if transaction is not None
    ]
