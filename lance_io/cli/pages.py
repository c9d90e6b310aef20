"""`pages`: layout and encoding of the columns of data files, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_io.cli.option_texts import column_names, storage_options
from lance_io.cli.output import show, steps
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import locate, open_table, run_file, short_key
from lance_io.dataset.cli_imports import (
    FileColumns,
    FileRef,
    OpenedFile,
    Projection,
    ReadContext,
    SearchCache,
    describe_columns,
    describe_pages,
    format_bytes,
    load_columns,
    open_cached,
)
from lance_io.errors import BindError, UsageError
from lance_io.limits import METADATA_CACHE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import ColumnPages, FileSteps, PageDescription, TableFile


def pages(
    uri: str,
    columns: list[str] | None,
    each_page: bool,
    each_file: bool,
    version: int | None,
    tag: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io pages`."""
    files = _files(uri, version, tag, storage_option)
    names = column_names(columns)
    described = [
        _describe_file(context, here, base, names) for context, here, base in steps("reading file metadata", files)
    ]
    report = {
        "files": described,
        "columns": [total.report() for total in _totals(described)],
    }
    apart = each_file or each_page or len(described) == 1
    show(report, as_json, lambda shown: _show_files(shown, each_page) if apart else _show_totals(shown))


def _files(
    uri: str, version: int | None, tag: str | None, options: list[str] | None
) -> list[tuple[ReadContext, FileRef | FileColumns, str]]:
    """The data files of a URI: itself, or those of a dataset, each once, with their columns."""
    location, is_dataset = locate(uri, storage_options(options))
    if is_dataset:
        state = open_table(uri, version, tag, options)
        projection = Projection(state.schema.fields)
        files = {
            here.ref.key: here
            for fragment_index in state.all_fragment_indexes
            for here in projection.locate(state.sources[fragment_index])
        }
        return [(state.context, here, state.location.path) for here in files.values()]
    if version is not None or tag is not None:
        raise UsageError(f"{location.uri} is not a dataset: a data file has no versions")
    store = location.store
    context = ReadContext(store, SearchCache(METADATA_CACHE_BYTES))
    return [(context, FileRef(location.path, 0, (), ()), location.path.rpartition("/")[0])]


# -- one file ---------------------------------------------------------------------------------------------------------


def _read(context: ReadContext, ref: FileRef) -> FileSteps[TableFile]:
    """The file with the metadata of all of its columns."""
    file, _ = yield from open_cached(context, ref, [])
    if isinstance(file, OpenedFile) and (missing := file.missing(list(range(len(file.paths))))):
        yield from load_columns(file, missing)
    return file


def _describe_file(
    context: ReadContext, here: FileRef | FileColumns, base: str, names: list[str] | None
) -> dict[str, Any]:
    """A data file and its columns, from its metadata alone.

    base   folder that is removed from the file's path
    names  columns to describe, None for all. Raises BindError for a missing one.
    """
    ref = here if isinstance(here, FileRef) else here.ref
    file = run_file(context, ref.key, _read(context, ref))
    if isinstance(file, OpenedFile):
        columns = describe_columns(file)
    else:
        assert not isinstance(here, FileRef), "opening it would have failed"
        columns = describe_pages(file.view(here).columns)
    if names is not None:
        columns = _choose_leaves(columns, names)
    return {
        "path": short_key(ref.key, base),
        "file_version": file.version.name,
        "num_rows": file.num_rows,
        "size_bytes": file.size_bytes,
        "columns": [_column(column) for column in columns],
    }


def _choose_leaves(columns: list[ColumnPages], names: list[str]) -> list[ColumnPages]:
    """The leaf columns of names: themselves, or everything below a struct or list."""
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
    """Values of a page: the items of its lists, if their number is known, else its rows."""
    return int(page.details.get("items", page.num_rows))


def _bits(num_bytes: int, num_values: int) -> float:
    return 8 * num_bytes / num_values if num_values else 0.0


def _each_once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


# -- columns of all files --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Total:
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


def _totals(files: list[dict[str, Any]]) -> list[_Total]:
    totals: dict[str, _Total] = {}
    for file in files:
        for column in file["columns"]:
            totals.setdefault(column["name"], _Total(column["name"], column["type"])).add(column)
    return list(totals.values())


# -- for people ------------------------------------------------------------------------------------------------------

_HEADERS = ["column", "type", "layout", "codec", ">pages", ">rows", ">bytes", ">bits/value"]
CODECS_SHOWN_MAX = 4


def _show_totals(report: dict[str, Any]) -> Shown:
    num_files = len(report["files"])
    return Table(_HEADERS, [_line(column) for column in report["columns"]], title=f"{num_files} data files")


def _show_files(report: dict[str, Any], each_page: bool) -> Shown:
    parts: list[Shown] = []
    for file in report["files"]:
        title = (
            f"{file['path']}  file version {file['file_version']}, {file['num_rows']:,} rows, "
            f"{format_bytes(file['size_bytes'])}"
        )
        rows = [line for column in file["columns"] for line in (_page_lines(column) if each_page else [_line(column)])]
        parts.append(Table([*_HEADERS, "details"] if each_page else _HEADERS, rows, title=title))
    return parts or "no data files"


def _line(column: dict[str, Any]) -> tuple[object, ...]:
    codecs = [*column["codecs"], *(f"+ {levels}" for levels in column["levels"])]
    more = len(codecs) - CODECS_SHOWN_MAX
    return (
        column["name"],
        column["type"],
        ", ".join(column["layouts"]),
        "\n".join(codecs[:CODECS_SHOWN_MAX] + ([f"... and {more} more"] if more > 0 else [])),
        column["num_pages"],
        column["num_rows"],
        column["num_bytes"],
        column["bits_per_value"],
    )


def _page_lines(column: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (
            column["name"],
            column["type"],
            page["layout"],
            "\n+ ".join([page["codec"], *(f"{name} {codec}" for name, codec in page["levels"].items())]),
            number,
            page["num_rows"],
            page["num_bytes"],
            page["bits_per_value"],
            ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in page["details"].items()),
        )
        for number, page in enumerate(column["pages"])
    ]
