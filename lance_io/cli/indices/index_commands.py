"""Arguments and help texts of `lance-io index`. This module loads fast, as `commands.py` does."""

from typing import Annotated, Literal

import typer

from lance_io.cli.commands import DatasetUri, Json, StorageOptions, Tag, Version, implemented_in
from lance_io.errors import UsageError

app = typer.Typer(
    name="index",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Build, list, describe, update and drop indices.",
)
IndexName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the index.", show_default=False)]
MemoryLimit = Annotated[
    int | None, typer.Option("--memory-limit", min=16, help="Memory for rows in MiB; 256 by default.")
]


@app.command()
@implemented_in("indices.index_work")
def create(
    uri: DatasetUri,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="Name or dotted path.", show_default=False)],
    kind: Annotated[
        Literal["btree", "bitmap", "label_list", "ngram", "zonemap", "bloomfilter", "ivf_flat", "ivf_pq", "ivf_sq"],
        typer.Option("--kind", "-k", help="Kind of the index.", case_sensitive=False),
    ] = "btree",
    name: Annotated[str | None, typer.Option("--name", help="Name of the index; COLUMN_idx by default.")] = None,
    json_path: Annotated[
        str | None, typer.Option("--json-path", help="Index the values of this path in JSON documents (btree, bitmap).")
    ] = None,
    zone_rows: Annotated[
        int | None,
        typer.Option("--zone-rows", min=1, help="Rows of a page (btree), zone (zonemap) or filter (bloomfilter)."),
    ] = None,
    metric: Annotated[
        Literal["l2", "cosine", "dot", "hamming"] | None,
        typer.Option("--metric", help="Distance of vectors (ivf); l2 by default.", case_sensitive=False),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Partitions of vectors (ivf); by default by the rows.")
    ] = None,
    sub_vectors: Annotated[
        int | None, typer.Option("--sub-vectors", min=1, help="Codes of a vector; it divides the dimension (ivf_pq).")
    ] = None,
    bits: Annotated[
        int | None, typer.Option("--bits", min=4, max=8, help="Bits of a code: 8 by default, or 4 (ivf_pq).")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Fail if there is an index of this name.")] = False,
    memory_limit: MemoryLimit = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Build an index over a column, as a new version."""
    if json_path is not None and kind not in ("btree", "bitmap"):
        raise UsageError("--json-path goes with the kinds btree and bitmap")
    if zone_rows is not None and kind not in ("btree", "zonemap", "bloomfilter"):
        raise UsageError("--zone-rows goes with the kinds btree, zonemap and bloomfilter")
    if not kind.startswith("ivf_") and (metric is not None or partitions is not None):
        raise UsageError("--metric and --partitions go with the kinds ivf_flat, ivf_pq and ivf_sq")
    if (kind == "ivf_pq") != (sub_vectors is not None) or (kind != "ivf_pq" and bits is not None):
        raise UsageError("--sub-vectors, and --bits, go with the kind ivf_pq, which needs the first")


@app.command(name="list")
@implemented_in("indices.index_work")
def list_all(
    uri: DatasetUri,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """List the indices of a version: kind, column, rows, segments, size."""


@app.command()
@implemented_in("indices.index_work")
def stats(
    uri: DatasetUri,
    name: IndexName,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Describe an index: the rows that it covers, and its segments."""


@app.command()
@implemented_in("indices.index_work")
def optimize(
    uri: DatasetUri,
    name: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of indices; all by default.")
    ] = None,
    merge: Annotated[
        int, typer.Option("--merge", min=0, help="Segments to merge with the new rows; 0 adds a segment.")
    ] = 1,
    retrain: Annotated[bool, typer.Option("--retrain", help="Build one segment in place of all.")] = False,
    memory_limit: MemoryLimit = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Bring indices up to date with the rows that they do not cover, as a new version."""


@app.command()
@implemented_in("indices.index_work")
def drop(
    uri: DatasetUri,
    name: IndexName,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Remove an index from the table, as a new version; a cleanup deletes its files."""
