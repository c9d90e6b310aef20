"""Make a table with very many old versions, like a table with an append every minute and a compaction now and then.

    python scripts/old_versions.py FOLDER --versions 340000 [--seconds 60] [--clean]

Version n has one data file more than version n - 1; every tenth has only the first again, as after a compaction.
Manifests, transactions and data files have the times of such a table. The data files of old versions hold no readable
rows. `--clean` removes the old versions and prints the time.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lance_io
from lance_io.table.manifest.paths import VERSIONS, manifest_name
from lance_io.table.manifest_file import encode_manifest_file
from lance_io.table.transaction.apply import build_manifest
from lance_io.table.transaction.operations import Append
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from lance_io.table.manifest.fragment import Fragment

FILES_OF_A_VERSION = 10


def make_table(folder: Path, num_versions: int, seconds: float) -> None:
    """Write the table; its newest version, `num_versions + 2`, is readable.

    seconds  between two versions
    """
    ds = lance_io.write_dataset(pa.table({"a": range(10)}), folder)
    base = ds._state.manifest
    fragment = base.fragments[0]
    began = time.time() - num_versions * seconds
    current = base
    for number in range(2, num_versions + 2):
        written_at = began + (number - 2) * seconds
        path = f"{uuid.uuid4().hex}.lance"
        added = in_file(fragment, path)
        transaction = Transaction(number - 1, Append((added,)))
        start = base if number % FILES_OF_A_VERSION == 0 else current
        following = build_manifest(start, transaction, timestamp_ns=int(written_at * 1e9), version=number)
        file = encode_manifest_file(following)
        current = file.manifest
        for name, data in (
            (f"data/{path}", b"no rows"),
            (transaction.path, file.transaction),
            (f"{VERSIONS}/{manifest_name(number, 'V2')}", file.data),
        ):
            (folder / name).write_bytes(data)
            os.utime(folder / name, (written_at, written_at))
    last = lance_io.dataset(folder, version=1)
    last.restore()


def in_file(fragment: Fragment, path: str) -> Fragment:
    """A fragment of the same columns in another file."""
    return replace(fragment, id=0, message=None, files=(replace(fragment.files[0], path=path),))


def clean(folder: Path) -> None:
    """Remove the old versions and print the time."""
    ds = lance_io.dataset(folder)
    started = time.perf_counter()
    stats = ds.cleanup_old_versions(older_than=timedelta(seconds=1), error_if_tagged_old_versions=False)
    elapsed = time.perf_counter() - started
    print(f"{stats.old_versions:,} versions, {stats.data_files_removed:,} data files in {elapsed:.1f} s: {stats}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--versions", type=int, default=340_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="between two versions")
    parser.add_argument("--clean", action="store_true", help="remove the old versions and print the time")
    given = parser.parse_args()
    if not given.folder.exists():
        make_table(given.folder, given.versions, given.seconds)
    if given.clean:
        clean(given.folder)
