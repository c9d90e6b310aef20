"""The columns of data files as plain values: what `pages` prints.

A report of a file has its columns, each with its pages; totals put the columns of many files together by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_io.cli.target import run_file, short_key
from lance_io.errors import BindError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.encodings.api import PageDescription
    from lance_io.file.file_report import ColumnPages
    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.file.open.file_source import FileRef, ReadContext


def _read(context: ReadContext, ref: FileRef) -> FileSteps[OpenedFile]:
    """The file with the metadata of all of its columns."""
    from lance_io.file.open.open_file import load_columns, opened

    file, _ = yield from opened(context, ref, [])
    missing = file.missing(list(range(len(file.paths))))
    if missing:
        yield from load_columns(file, missing)
    return file


def describe_file(context: ReadContext, ref: FileRef, base: str, names: list[str] | None) -> dict[str, Any]:
    """A data file and its columns, read from its metadata alone.

    base   folder left out of the file's path
    names  columns wanted, None for all. Raises BindError for one that is not there.
    """
    from lance_io.file.file_report import describe_columns

    file = run_file(context, ref.key, _read(context, ref))
    columns = describe_columns(file)
    if names is not None:
        columns = _chosen(columns, names)
    return {
        "path": short_key(ref.key, base),
        "file_version": file.version.name,
        "num_rows": file.num_rows,
        "size_bytes": file.size_bytes,
        "columns": [_column(column) for column in columns],
    }


def _chosen(columns: list[ColumnPages], names: list[str]) -> list[ColumnPages]:
    """The leaf columns that names stand for: themselves, or everything below a struct or list."""
    for name in names:
        if not any(_is_below(column.name, name) for column in columns):
            known = ", ".join(column.name for column in columns)
            raise BindError(f"No column named {name}. The file has {known}.")
    return [column for column in columns if any(_is_below(column.name, name) for name in names)]


def _is_below(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _column(column: ColumnPages) -> dict[str, Any]:
    num_values = sum(map(_num_values, column.pages))
    return {
        "index": column.index,
        "name": column.name,
        "type": column.type,
        "layouts": _each_once(page.layout for page in column.pages),
        "codecs": _each_once(page.codec for page in column.pages),
        "levels": _each_once(filter(None, (_levels(page) for page in column.pages))),
        "num_pages": len(column.pages),
        "num_rows": column.num_rows,
        "num_values": num_values,
        "num_bytes": column.num_bytes,
        "bits_per_value": _bits(column.num_bytes, num_values),
        "pages": [
            {
                "layout": page.layout,
                "codec": page.codec,
                "levels": dict(page.levels),
                "num_rows": page.num_rows,
                "num_values": _num_values(page),
                "num_bytes": page.num_bytes,
                "bits_per_value": _bits(page.num_bytes, _num_values(page)),
                "details": dict(page.details),
            }
            for page in column.pages
        ],
    }


def _levels(page: PageDescription) -> str:
    return ", ".join(f"{name} {codec}" for name, codec in page.levels.items())


def _num_values(page: PageDescription) -> int:
    """Values of a page: the items of its lists, where it says how many there are, else its rows."""
    return int(page.details.get("items", page.num_rows))


def _bits(num_bytes: int, num_values: int) -> float:
    return 8 * num_bytes / num_values if num_values else 0.0


def _each_once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


# -- columns of all files --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Total:
    """One column over all files, by its path."""

    name: str
    type: str
    layouts: dict[str, None] = field(default_factory=dict)
    codecs: dict[str, None] = field(default_factory=dict)
    levels: dict[str, None] = field(default_factory=dict)
    num_files: int = 0
    num_pages: int = 0
    num_rows: int = 0
    num_values: int = 0
    num_bytes: int = 0

    def add(self, column: dict[str, Any]) -> None:
        self.layouts |= dict.fromkeys(column["layouts"])
        self.codecs |= dict.fromkeys(column["codecs"])
        self.levels |= dict.fromkeys(column["levels"])
        self.num_files += 1
        for name in ("num_pages", "num_rows", "num_values", "num_bytes"):
            setattr(self, name, getattr(self, name) + column[name])

    def report(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "layouts": list(self.layouts),
            "codecs": list(self.codecs),
            "levels": list(self.levels),
            "num_files": self.num_files,
            "num_pages": self.num_pages,
            "num_rows": self.num_rows,
            "num_values": self.num_values,
            "num_bytes": self.num_bytes,
            "bits_per_value": _bits(self.num_bytes, self.num_values),
        }


def totals(files: list[dict[str, Any]]) -> list[Total]:
    totals: dict[str, Total] = {}
    for file in files:
        for column in file["columns"]:
            totals.setdefault(column["name"], Total(column["name"], column["type"])).add(column)
    return list(totals.values())
