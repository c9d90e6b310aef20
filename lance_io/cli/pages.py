"""`pages`: how the columns of data files are laid out and encoded, and what that takes."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_io.cli.filepages import describe_file, totals
from lance_io.cli.options import AnyUri, Columns, Json, StorageOptions, Tag, Version, column_names, storage_options
from lance_io.cli.output import group, show, steps, table
from lance_io.cli.target import locate, open_table
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lance_io.file.open.file_source import FileRef, ReadContext


def pages(
    uri: AnyUri,
    columns: Columns = None,
    each_page: Annotated[bool, typer.Option("--each-page", help="One line per page.")] = False,
    each_file: Annotated[bool, typer.Option("--each-file", help="Of a dataset: one table per data file.")] = False,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Layout, codecs, rows, bytes and bits per value of every column, from file metadata alone."""
    files = _files(uri, version, tag, storage_option)
    names = column_names(columns)
    described = [
        describe_file(context, ref, base, names) for context, ref, base in steps("reading file metadata", files)
    ]
    report = {
        "files": described,
        "columns": [total.report() for total in totals(described)],
    }
    apart = each_file or each_page or len(described) == 1
    show(report, as_json, lambda one: _show_files(one, each_page) if apart else _show_totals(one))


def _files(
    uri: str, version: int | None, tag: str | None, options: list[str] | None
) -> "list[tuple[ReadContext, FileRef, str]]":
    """The data files that a URI names: itself, or those of a dataset, each once."""
    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.io.cache import SearchCache
    from lance_io.limits import METADATA_CACHE_BYTES

    location, is_dataset = locate(uri, storage_options(options))
    if is_dataset:
        state = open_table(uri, version, tag, options)
        refs = {ref.key: ref for place in state.all_places for ref in state.sources[place].files}
        return [(state.context, ref, state.location.path) for ref in refs.values()]
    if version is not None or tag is not None:
        raise UsageError(f"{location.uri} is no dataset: a data file has no versions")
    store = location.store
    context = ReadContext(store, SearchCache(METADATA_CACHE_BYTES))
    return [(context, FileRef(location.path, 0, (), ()), location.path.rpartition("/")[0])]


# -- for people ------------------------------------------------------------------------------------------------------

_HEADERS = ["column", "type", "layout", "codec", ">pages", ">rows", ">bytes", ">bits/value"]
CODECS_SHOWN_MAX = 4


def _show_totals(report: dict[str, Any]) -> "RenderableType":
    num_files = len(report["files"])
    return table(_HEADERS, [_line(one) for one in report["columns"]], title=f"{num_files} data files")


def _show_files(report: dict[str, Any], each_page: bool) -> "RenderableType":
    from lance_io.dataset.scan.io_plan import format_bytes

    parts = []
    for file in report["files"]:
        title = (
            f"{file['path']}  file version {file['file_version']}, {file['num_rows']:,} rows, "
            f"{format_bytes(file['size_bytes'])}"
        )
        rows = [line for column in file["columns"] for line in (_page_lines(column) if each_page else [_line(column)])]
        parts.append(table([*_HEADERS, "details"] if each_page else _HEADERS, rows, title=title))
    return group(*parts) if parts else "no data files"


def _line(one: dict[str, Any]) -> tuple[object, ...]:
    codecs = [*one["codecs"], *(f"+ {levels}" for levels in one["levels"])]
    more = len(codecs) - CODECS_SHOWN_MAX
    return (
        one["name"],
        one["type"],
        ", ".join(one["layouts"]),
        "\n".join(codecs[:CODECS_SHOWN_MAX] + ([f"... and {more} more"] if more > 0 else [])),
        one["num_pages"],
        one["num_rows"],
        one["num_bytes"],
        one["bits_per_value"],
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
