"""Whole files and tables, made by pylance and by ourselves, for the campaign to damage.

files/NAME.lance          one data file each: every layout and codec of `tests/encodings/cases.py`, as 2.1 and as 2.2
files/array-NAME.lance    files of 2.0 that pylance writes; made-NAME.lance such as nobody writes
files/ours-NAME.lance     the same by our writer, which lays out what readers need first in regions of its own
tables/NAME.lance         deletions of both kinds, stable and spilled row ids, several data files per fragment, blobs
tables/ours-NAME.lance    the same by our writer
base/                     files of tables with base paths, which are never damaged

`make_old_specimens` makes those of file versions 2.0 and 0.1 alone, by both writers. A data file of 0.1 is read as a
part of its table: `files/batched-NAME.lance` is a table of which only data files are damaged.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

import lance_io
from tests.dataset.v0_1.batched_cases import CASES as BATCHED
from tests.encodings.cases import Case, all_cases, random_rows
from tests.encodings.harness import write
from tests.encodings.v2_0.handmade_cases import MADE
from tests.encodings.v2_0.written_cases import written_cases
from tests.file.test_writer_cases import write as write_ours

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

FILE_BYTES_MAX = 200_000  # reading a case must stay cheap; larger ones show nothing new

# One case or two of every layout and codec: what the test suite itself damages.
FEW = (
    "int8 small", "int32 nulls", "int64 runs of 10", "int64 constant", "bool nulls", "string sentences nulls",
    "string ten words nulls", "string tiny", "string constant", "strings 300 0 400", "large_string ten words",
    "string long nulls", "list<item: int32> all three", "list of list", "list of string ten words", "list<null>",
    "list of string long", "struct of struct and list of struct 0.25/0.25", "struct of list of long string",
    "vector small nulls", "vector of int 4 null items", "vector of bool 5 nulls", "vector of vector 40 0.15",
    "list of vector 100 0.2", "fixed_size_binary 500 nulls", "fixed_size_binary 16 few", "decimal128 seven",
    "null", "all-null string", "all lists null", "dictionary int8 nulls", "struct packed nulls",
    "packed struct with string", "lz4 int32", "zstd bss double", "zstd runs", "zstd long strings nulls",
    "lz4 few words", "full-zip list of list", "full-zip list of bool", "full-zip eight lists", "map of lists",
    "vector of struct", "empty struct", "dictionary of flags nulls", "list of vector of null",
    "fixed_size_binary 0 nulls",
)  # fmt: skip


FEW_ARRAYS = (
    "int32", "bool nulls", "string mixed", "large_binary mixed", "string 50 distinct", "string all null", "string zstd",
    "string lz4", "string nulls fsst", "vectors nulls", "vectors of bool", "list", "list of string",
    "list of list of list", "list of vector", "list of struct", "struct", "dictionary int16", "dictionary null value",
    "list of dictionary", "packed struct", "empty struct",
)  # fmt: skip


def make_specimens(folder: Path, *, all_of_them: bool = False) -> None:
    """Write them below `folder`."""
    (folder / "files").mkdir(parents=True)
    (folder / "tables").mkdir()
    cases = [case for case in all_cases() if all_of_them or case.name in FEW]
    for number, (case, version, tiny) in enumerate(_variants(cases, all_of_them)):
        _write_case(folder / "files" / f"{number}.lance", case, version, tiny_pages=tiny)
        _write_ours(folder / "files" / f"ours-{number}.lance", case, version, tiny_pages=not tiny)
    for path in (folder / "files").iterdir():
        if path.stat().st_size > FILE_BYTES_MAX:
            path.unlink()
    write(folder / "files" / "wide.lance", _wide(), "2.1", tiny_pages=True)
    write_ours(folder / "files" / "ours-wide.lance", _wide(), "2.2", tiny_pages=True)
    _arrays(folder / "files", all_of_them)
    _tables(folder / "tables", "2.0", lance, "")
    for library, prefix in ((lance, ""), (lance_io, "ours-")):
        _batched(folder / "tables" / f"{prefix}batched.lance", library)
    for version in ("2.1", "2.2"):
        _tables(folder / "tables", version, lance, "")
        _tables(folder / "tables", version, lance_io, "ours-")
        _spilled(folder / "tables" / f"spilled-{version}.lance", version)
        _based(folder / "tables" / f"based-{version}.lance", folder / "base" / version, version)


def make_old_specimens(folder: Path, *, all_of_them: bool = False) -> None:
    """Write those of versions 2.0 and 0.1 below `folder`."""
    (folder / "files").mkdir(parents=True)
    (folder / "tables").mkdir()
    _arrays(folder / "files", all_of_them, ours=True)
    _batched_cases(folder / "files", all_of_them)
    for library, prefix in ((lance, ""), (lance_io, "ours-")):
        _tables(folder / "tables", "2.0", library, prefix)
        _batched(folder / "tables" / f"{prefix}batched.lance", library)


def _arrays(folder: Path, all_of_them: bool, *, ours: bool = False) -> None:
    """Files of version 2.0: what pylance writes, what we do, and what nobody does."""
    cases = [case for case in written_cases() if all_of_them or case.name in FEW_ARRAYS]
    for number, case in enumerate(cases):
        table = case.table()
        if table.nbytes < FILE_BYTES_MAX and table.num_columns:
            write(folder / f"array-{number}.lance", table.slice(0, 1500), "2.0", tiny_pages=number % 2 == 0)
            if ours:
                write_ours(folder / f"ours-{number}.lance", table.slice(0, 1500), "2.0", tiny_pages=number % 2 == 1)
    write(folder / "array-wide.lance", _without_null_structs(), "2.0", tiny_pages=True)
    for number, made in enumerate(MADE if all_of_them else MADE[::4]):
        made.write(folder / f"made-{number}.lance")


def _without_null_structs() -> pa.Table:
    nested = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.string()), ("y", pa.float64())])))])
    rows = [{"a": i, "l": [{"x": f"{i}", "y": i / 2}] * (i % 3) if i % 7 else None} for i in range(300)]
    texts = [f"row {i}" if i % 5 else None for i in range(300)]
    return pa.table({"i": range(300), "s": texts, "n": pa.array(rows, nested)})


def _variants(cases: list[Case], all_of_them: bool) -> Iterator[tuple[Case, str, bool]]:
    for number, case in enumerate(cases):
        for version in case.versions:
            if all_of_them:
                yield case, version, False
                yield case, version, True
            elif (number % 2 == 0) == (version == "2.1") or len(case.versions) == 1:
                yield case, version, number % 4 < 2


def _write_case(path: Path, case: Case, version: str, *, tiny_pages: bool) -> None:
    try:
        write(path, case.table().slice(0, 1500), version, tiny_pages=tiny_pages)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pylance can panic when it writes slices of nested arrays
            raise
        path.unlink(missing_ok=True)


def _write_ours(path: Path, case: Case, version: str, *, tiny_pages: bool) -> None:
    write_ours(path, case.table().slice(0, 1500), version, tiny_pages=tiny_pages)


def _wide() -> pa.Table:
    nested = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.string()), ("y", pa.float32())])))])
    return pa.table(
        {
            "i": range(300),
            "s": [f"row {i}" if i % 5 else None for i in range(300)],
            "n": random_rows(nested, 300, 0.2, 0.2, 5),
        }
    )


def _tables(folder: Path, version: str, library: ModuleType, prefix: str) -> None:
    """The tables of one library; changes that ours does not make are pylance's in both."""

    def make(rows: pa.Table, name: str, **options: object) -> lance.LanceDataset:
        path = folder / f"{prefix}{name}-{version}.lance"
        library.write_dataset(rows, str(path), data_storage_version=version, **options)
        return library.dataset(str(path))

    rows = pa.table({"i": range(120), "s": [f"row {i}" for i in range(120)], "l": [[i] * (i % 4) for i in range(120)]})
    few = make(rows, "few", max_rows_per_file=40)
    few.delete("i in (1, 50, 51, 119)")
    lance.dataset(few.uri).add_columns({"twice": "i * 2"})
    library.dataset(few.uri).delete("i = 7")
    make(pa.table({"i": range(60_000)}), "many").delete("i % 3 = 0 or i between 7000 and 9000")
    stable = make(rows, "stable", max_rows_per_file=40, enable_stable_row_ids=True)
    stable.delete("i % 10 = 3")
    lance.dataset(stable.uri).update({"s": "'new'"}, where="i % 10 = 4")
    make(_blobs(version), "blob")


def _batched(path: Path, library: ModuleType) -> None:
    """A table of version 0.1: every kind of pages, statistics, dictionary values in the manifest, two fragments."""
    rows = pa.table(
        {
            "i": range(120),
            "s": [f"row {i}" if i % 5 else None for i in range(120)],
            "flag": [i % 3 == 0 for i in range(120)],
            "vector": pa.array([[i, i + 1] for i in range(120)], pa.list_(pa.float32(), 2)),
            "l": [[f"item {j}" for j in range(i % 4)] for i in range(120)],
            "n": [{"a": i, "b": [[i] * (i % 3)] * (i % 2)} for i in range(120)],
            "d": pa.array(["few", "words", "here"] * 40).dictionary_encode(),
            "none": pa.nulls(120),
        }
    )
    options = {"max_rows_per_group": 16, "max_rows_per_file": 80}
    library.write_dataset(rows, str(path), data_storage_version="legacy", **options)
    library.dataset(str(path)).delete("i in (3, 4, 100)")


def _batched_cases(folder: Path, all_of_them: bool) -> None:
    """Tables of version 0.1 with columns of every type that its files hold, a few batches in each file."""
    for number, (rows, rows_per_batch) in enumerate(list(BATCHED.values())[:: 1 if all_of_them else 3]):
        options = {"max_rows_per_group": rows_per_batch, "max_rows_per_file": 400, "data_storage_version": "legacy"}
        lance.write_dataset(rows, str(folder / f"batched-{number}.lance"), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # nulls are lost, as they are by pylance
            lance_io.write_dataset(rows, str(folder / f"batched-ours-{number}.lance"), **options)


def _spilled(path: Path, version: str) -> None:
    """Row ids and row versions in columns of data files, of their own and beside others."""
    rows = pa.table({"i": range(300)})
    options = {"enable_stable_row_ids": True, "data_storage_version": version}
    table = lance.write_dataset(rows, str(path), max_rows_per_file=150, **options)
    table.update_config({"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "10"})
    for step in (7, 3):
        lance.dataset(table.uri).merge_insert("i").when_matched_update_all().execute(
            rows.take(list(range(0, 300, step)))
        )
        if step == 7:
            lance.dataset(table.uri).optimize.compact_files()


def _based(path: Path, base: Path, version: str) -> None:
    """Data files below two base paths and in the table's own folder."""
    rows = pa.table({"i": range(120), "s": [f"row {i}" for i in range(120)]})
    bases = [
        lance.DatasetBasePath(f"{base}/root", name="root", is_dataset_root=True),
        lance.DatasetBasePath(f"{base}/plain", name="plain"),
    ]
    options = {"max_rows_per_file": 40, "data_storage_version": version}
    lance.write_dataset(rows, str(path), initial_bases=bases, target_bases=["root", "plain"], **options).delete("i = 7")
    lance.write_dataset(rows.slice(0, 9), str(path), mode="append", **options)


def _blobs(version: str) -> pa.Table:
    """Blobs of the version's kind: in 2.2 also packed and dedicated sidecars, and blobs inside lists."""
    values = [None if i % 5 == 0 else bytes(i) for i in range(30)]
    number, marked = (
        pa.field("i", pa.int64()),
        pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
    )
    if version in ("2.0", "2.1"):
        column = pa.array(values, pa.large_binary())
        return pa.table([pa.array(range(30)), column], schema=pa.schema([number, marked]))
    field = lance_io.blob_field("b", inline_size_threshold=10, dedicated_size_threshold=25)
    lists = pa.list_(marked.with_name("item"))
    items = [None if i % 7 == 0 else values[i : i + i % 4] for i in range(30)]
    columns = [pa.array(range(30)), lance_io.blob_array(values), pa.array(items, lists)]
    return pa.table(columns, schema=pa.schema([number, field, pa.field("l", lists)]))
