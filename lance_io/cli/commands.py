"""What each command takes, and what it tells about itself. Nothing here is slow to load.

A command's work is a function of the same name and arguments in a module of its own, which loads when the command runs:
only that one needs numpy, Arrow and stores. The body of a command refuses what its arguments alone show to be wrong.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Annotated, Final, Literal, ParamSpec

import typer

from lance_io.cli.option_texts import take_sizes
from lance_io.errors import UsageError

P = ParamSpec("P")

TAKE_SIZES: Final = "1,10,100,1000"  # of `bench`
SOURCES: Final = "Parquet, CSV or Arrow files, or Lance tables on local disk."

# -- arguments and options that several commands share -----------------------------------------------------------------

DatasetUri = Annotated[
    str, typer.Argument(metavar="URI", help="Dataset: a local path, file://, s3://bucket/path ...", show_default=False)
]
AnyUri = Annotated[
    str, typer.Argument(metavar="URI", help="A data file, or a dataset for all of its files.", show_default=False)
]
Version = Annotated[int | None, typer.Option("--version", "-v", min=0, help="Version number; the newest by default.")]
Tag = Annotated[str | None, typer.Option("--tag", help="Open the version that this tag names.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        "-o",
        metavar="KEY=VALUE",
        help="Setting of the store, such as aws_region=eu-west-1; may be repeated. Credentials are never printed.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", "-c", metavar="NAMES", help="Columns, comma separated or repeated; all by default."),
]
Filter = Annotated[
    str | None, typer.Option("--filter", "-f", metavar="TEXT", help='Only rows that pass, such as "price > 40".')
]
SourceFormatOption = Annotated[
    Literal["parquet", "csv", "arrow", "arrow-stream", "lance"] | None,
    typer.Option("--format", help="Of the files; told by their first bytes by default."),
]
CsvTypes = Annotated[
    list[str] | None,
    typer.Option("--csv-type", metavar="NAME=TYPE", help="Type of a CSV column, such as price=float64; repeated."),
]
CsvDelimiter = Annotated[str | None, typer.Option("--csv-delimiter", help="Between values of CSV files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def implemented_in(module: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A command that, once its body has not refused its arguments, runs its namesake in that module of this room."""

    def complete(declared: Callable[P, None]) -> Callable[P, None]:
        @wraps(declared)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            declared(*args, **kwargs)
            getattr(import_module(f"lance_io.cli.{module}"), declared.__name__)(*args, **kwargs)

        return run

    return complete


# -- what a dataset is -------------------------------------------------------------------------------------------------


@implemented_in("inspect")
def info(
    uri: DatasetUri,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Rows, fragments, sizes, versions and settings of a dataset."""


@implemented_in("inspect")
def schema(
    uri: DatasetUri,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Fields with their ids, Arrow types and metadata."""


@implemented_in("inspect")
def versions(
    uri: DatasetUri,
    storage_option: StorageOptions = None,
    as_json: Json = False,
    version: Version = None,
    tag: Tag = None,
) -> None:
    """All versions with their time, rows and files; `--version` or `--tag` shows one."""


@implemented_in("version_log")
def log(
    uri: DatasetUri,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many versions at most.")] = 20,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Versions, newest first: what made them, when, and how many rows came and went."""


@implemented_in("inspect")
def fragments(
    uri: DatasetUri,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Fragments with their rows, data files and deletions."""


@implemented_in("pages")
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


# -- rows --------------------------------------------------------------------------------------------------------------


@implemented_in("rows")
def head(
    uri: DatasetUri,
    num_rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="How many rows.")] = 10,
    columns: Columns = None,
    filter: Filter = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """The first rows, or the first that pass a filter."""


@implemented_in("rows")
def count(
    uri: DatasetUri,
    filter: Filter = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """The number of rows; without a filter no data is read."""


@implemented_in("write_report")
def write(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help=SOURCES, show_default=False)],
    uri: DatasetUri,
    mode: Annotated[
        Literal["create", "append", "overwrite"],
        typer.Option("--mode", "-m", help="A new table; more rows; or a new version with these rows only."),
    ] = "create",
    format: SourceFormatOption = None,
    csv_type: CsvTypes = None,
    csv_delimiter: CsvDelimiter = None,
    max_rows_per_file: Annotated[
        int | None, typer.Option("--max-rows-per-file", min=1, help="Rows of a data file (and fragment) at most.")
    ] = None,
    data_storage_version: Annotated[
        str | None,
        typer.Option("--data-storage-version", help="File version: 2.0, 2.1, 2.2, stable; by default the table's."),
    ] = None,
    commit_message: Annotated[str | None, typer.Option("--commit-message", help="Kept with the version.")] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Write rows of files to a dataset, as one new version."""


# -- changes -----------------------------------------------------------------------------------------------------------


@implemented_in("change")
def delete(
    uri: DatasetUri,
    predicate: Annotated[str, typer.Argument(metavar="PREDICATE", help="Such as \"price > 40 AND drink = 'mate'\".")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Delete the rows that pass a filter, as a new version; older versions keep them.

    On a terminal, tells how many rows these are and asks.
    """


@implemented_in("change_columns")
def update(
    uri: DatasetUri,
    assignment: Annotated[
        list[str], typer.Argument(metavar="COLUMN=EXPRESSION...", help='Such as "price=price * 1.1".')
    ],
    where: Annotated[str | None, typer.Option("--where", "-w", metavar="TEXT", help="Only rows that pass.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Give the rows that pass a filter new values, as a new version; older versions keep the old ones.

    All expressions see the row as it was. On a terminal, tells how many rows these are and asks.
    """


@implemented_in("merge_sources")
def merge(
    uri: DatasetUri,
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help=SOURCES, show_default=False)],
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="KEYS", help="Key columns, comma separated; the declared primary key by default."),
    ] = None,
    when_matched: Annotated[
        Literal["update", "nothing", "delete", "fail"],
        typer.Option("--when-matched", help="Rows of the table that have the key of a row of the source."),
    ] = "update",
    update_if: Annotated[
        str | None,
        typer.Option(
            "--update-if", metavar="TEXT", help='Update only where it is true: "source.price > target.price".'
        ),
    ] = None,
    when_not_matched: Annotated[
        Literal["insert", "nothing"], typer.Option("--when-not-matched", help="Rows of the source without a match.")
    ] = "insert",
    when_not_matched_by_source: Annotated[
        Literal["keep", "delete"],
        typer.Option("--when-not-matched-by-source", help="Rows of the table without a match."),
    ] = "keep",
    delete_if: Annotated[
        str | None, typer.Option("--delete-if", metavar="TEXT", help="Of these, delete only those that pass.")
    ] = None,
    format: SourceFormatOption = None,
    csv_type: CsvTypes = None,
    csv_delimiter: CsvDelimiter = None,
    memory_limit: Annotated[
        int | None, typer.Option("--memory-limit", min=1, help="Bytes that the merge may hold; the rest goes to disk.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Merge rows of files into a table by a key, as one new version: update those that match, insert the others.

    The files may lack columns of the table. On a terminal, tells how many rows would change and asks.
    """
    if update_if is not None and when_matched != "update":
        raise UsageError(f"--update-if says what is updated: not with --when-matched {when_matched}")
    if delete_if is not None and when_not_matched_by_source != "delete":
        raise UsageError("--delete-if says what is deleted: give it with --when-not-matched-by-source delete")


@implemented_in("change_columns")
def add_column(
    uri: DatasetUri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the new column.", show_default=False)],
    expression: Annotated[
        str | None, typer.Argument(metavar="[EXPRESSION]", help='Its values, such as "price * 2".', show_default=False)
    ] = None,
    type: Annotated[
        str | None, typer.Option("--type", "-t", metavar="TYPE", help="An Arrow type, of a column without values.")
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Add a column: of the values of an expression, or of nulls of a type. Nothing else is written."""
    if (expression is None) == (type is None):
        raise UsageError("add-column needs an expression for its values, or --type for a column without: one of them")


@implemented_in("change_columns")
def drop_column(
    uri: DatasetUri,
    name: Annotated[list[str], typer.Argument(metavar="NAME...", help="`a.b` for a member.", show_default=False)],
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Take columns out of the schema, as a new version; a compaction and a cleanup free their space."""


@implemented_in("branching")
def branch(
    uri: DatasetUri,
    action: Annotated[Literal["list", "create", "delete"], typer.Argument(help="What to do.", show_default=False)],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of the branch.", show_default=False)] = None,
    version: Annotated[
        int | None, typer.Option("--version", "-v", min=0, help="That create leaves; the newest by default.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Leave the version that this tag names.")] = None,
    of: Annotated[str | None, typer.Option("--of", metavar="BRANCH", help="Leave this branch instead of main.")] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """List, create and delete branches: lines of versions that leave another one, without a copy."""
    if (action == "list") != (name is None):
        raise UsageError("branch list takes no name" if action == "list" else f"branch {action} needs a name")
    if action != "create" and any(one is not None for one in (version, tag, of)):
        raise UsageError(f"branch {action} takes no --version, --tag or --of")
    if tag is not None and any(one is not None for one in (version, of)):
        raise UsageError("--tag names a version of a branch: give it alone")


@implemented_in("branching")
def clone(
    uri: DatasetUri,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where the clone is to be.", show_default=False)],
    deep: Annotated[bool, typer.Option("--deep", help="Copy all files, so that the clone stands alone.")] = False,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    target_storage_option: Annotated[
        list[str] | None,
        typer.Option("--target-storage-option", metavar="KEY=VALUE", help="As --storage-option, of the clone's store."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a table of its own of a version: its files stay where they are, or are copied."""


@implemented_in("branching")
def diff(
    uri: DatasetUri,
    begin: Annotated[int, typer.Argument(metavar="BEGIN", min=1, help="A version.", show_default=False)],
    end: Annotated[
        int | None, typer.Argument(metavar="[END]", min=1, help="Another; the newest by default.", show_default=False)
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """What is different between two versions: rows inserted, updated and deleted, columns, fragments."""


@implemented_in("change")
def restore(
    uri: DatasetUri,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Make an older version, named by --version or --tag, the newest again, as a new version."""
    if version is None and tag is None:
        raise UsageError("restore needs --version or --tag: which version is to be the newest again")


@implemented_in("change")
def tag(
    uri: DatasetUri,
    action: Annotated[
        Literal["list", "create", "update", "delete"], typer.Argument(help="What to do.", show_default=False)
    ],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of the tag.", show_default=False)] = None,
    version: Annotated[
        int | None, typer.Option("--version", "-v", min=0, help="What create and update name; the newest by default.")
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """List, create, update and delete tags. A version with a tag survives `cleanup`."""
    if action == "list" and name is not None:
        raise UsageError("tag list takes no name")
    if action != "list" and name is None:
        raise UsageError(f"tag {action} needs the name of a tag")
    if action in ("list", "delete") and version is not None:
        raise UsageError(f"tag {action} takes no --version")


@implemented_in("change")
def cleanup(
    uri: DatasetUri,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Versions older than this, such as 14d or 12h.")
    ] = None,
    retain_versions: Annotated[
        int | None, typer.Option("--retain-versions", min=1, help="All but the last so many versions.")
    ] = None,
    delete_unverified: Annotated[
        bool,
        typer.Option(
            "--delete-unverified",
            help="Also files younger than 7 days that no version refers to. Only when nobody is writing.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go; so it is without --yes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Remove old versions and files that no version refers to. Without --yes, show what would go.

    Without --older-than and --retain-versions: versions older than two weeks. The newest version stays, and so do
    those younger than ten minutes unless --older-than is 0s, and whatever tags and branches refer to.
    """
    if dry_run and yes:
        raise UsageError("--dry-run and --yes contradict each other")


@implemented_in("compact")
def compact(
    uri: DatasetUri,
    target_rows: Annotated[
        int | None, typer.Option("--target-rows", min=1, help="Rows that a fragment should have; 1,048,576 by default.")
    ] = None,
    mode: Annotated[
        Literal["reencode", "try_binary_copy", "force_binary_copy"] | None,
        typer.Option("--mode", help="Whether pages are made anew, or copied as they are where that is allowed."),
    ] = None,
    max_fragments: Annotated[
        int | None, typer.Option("--max-fragments", min=1, help="Take at most so many fragments.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=1, help="Take fragments of at most so many bytes.")
    ] = None,
    memory_limit: Annotated[
        int | None, typer.Option("--memory-limit", min=1, help="Bytes that rows under way may take.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the new files back before they are committed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show fragments, bytes, requests and money, and do nothing.")
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="NAME", help="With --dry-run: as if the table were in such a store."),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Put small fragments together, without the rows that are deleted."""
    if store is not None and not dry_run:
        raise UsageError("--store says what a --dry-run is for")


# -- what reading costs ------------------------------------------------------------------------------------------------


@implemented_in("explain_report")
def explain(
    uri: DatasetUri,
    take: Annotated[
        str | None, typer.Option("--take", metavar="ROWS", help="Explain a take of these rows, such as 0,5,100-104.")
    ] = None,
    take_random: Annotated[
        int | None, typer.Option("--take-random", metavar="N", min=0, help="Explain a take of N random rows.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which random rows.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Of a scan: so many rows.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Of a scan: behind so many rows.")] = None,
    all_requests: Annotated[bool, typer.Option("--all", help="Show every request.")] = False,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="NAME",
            help="As if the table were there: s3, s3-express, gcs, azure or minio; its time and money.",
        ),
    ] = None,
    columns: Columns = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Which byte ranges a scan (or a take) would ask for, round by round, and what that is expected to cost.

    Reads the metadata that this needs, as the scan would; never data.
    """
    if take is not None and take_random is not None:
        raise UsageError("--take and --take-random both say which rows: give one of them")
    is_take = take is not None or take_random is not None
    if is_take and (limit is not None or offset is not None):
        raise UsageError("--limit and --offset belong to a scan, not to a take")


@implemented_in("bench")
def bench(
    uri: DatasetUri,
    columns: Columns = None,
    take_rows: Annotated[
        str, typer.Option("--take-rows", metavar="COUNTS", help="Sizes of the random takes.")
    ] = TAKE_SIZES,
    scans: Annotated[bool, typer.Option("--scan/--no-scan", help="Scan each column, and all of them.")] = True,
    seed: Annotated[int, typer.Option("--seed", help="Which random rows.")] = 0,
    bucket: Annotated[
        bool,
        typer.Option("--bucket", help="Measure the store, with objects of 32 MiB below URI that are deleted again."),
    ] = False,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Scan each column and take random rows: rows per second, bytes, requests.

    Takes are measured warm, after a first one that is shown as cold. The operating system's cache is left as it is.

    Of a bucket (s3://bucket, or --bucket): what GET, PUT and LIST take, bandwidth, requests a second, whether "if
    absent" is honoured; and the storage options that tell the engine so. Objects are written for it, and deleted.
    """
    take_sizes(take_rows)


@implemented_in("doctor")
def doctor(
    uri: DatasetUri,
    no_write: Annotated[bool, typer.Option("--no-write", help="Do not try a conditional put.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """What a store is told, by whom, and each step on the way to it: resolve, connect, list, read, a conditional put.

    Secrets are not shown. The object that is put is deleted again. Exit code 1 when a step fails.
    """
