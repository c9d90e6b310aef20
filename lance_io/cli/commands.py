"""Arguments and help texts of all commands. This module loads fast.

The implementation of a command is a function with the same name and arguments in another module, which loads when the
command runs: only that one needs numpy, Arrow and stores. The body of a command here checks its arguments.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Annotated, Final, Literal, ParamSpec

import typer

from lance_io.cli.option_texts import check_texts, take_sizes
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
        help="Option of the store, such as aws_region=eu-west-1; may be repeated. Credentials are never printed.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", "-c", metavar="NAMES", help="Columns, comma separated or repeated; all by default."),
]
Filter = Annotated[
    str | None, typer.Option("--filter", "-f", metavar="TEXT", help='Only matching rows, such as "price > 40".')
]
SourceFormatOption = Annotated[
    Literal["parquet", "csv", "arrow", "arrow-stream", "lance"] | None,
    typer.Option("--format", help="Format of the files; detected from their first bytes by default."),
]
CsvTypes = Annotated[
    list[str] | None,
    typer.Option("--csv-type", metavar="NAME=TYPE", help="Type of a CSV column, such as price=float64; repeated."),
]
CsvDelimiter = Annotated[str | None, typer.Option("--csv-delimiter", help="Delimiter of CSV files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def implemented_in(module: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A command that, after its body has checked its arguments, runs the function of the same name in that module.

    Typer passes the arguments by name.
    """

    def complete(declared: Callable[P, None]) -> Callable[P, None]:
        @wraps(declared)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            check_texts(declared, kwargs)
            declared(*args, **kwargs)
            getattr(import_module(f"lance_io.cli.{module}"), declared.__name__)(*args, **kwargs)

        return run

    return complete


# -- inspection --------------------------------------------------------------------------------------------------------


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
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximal number of versions.")] = 20,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Versions, newest first: operation, time, rows added and removed."""


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
    each_file: Annotated[bool, typer.Option("--each-file", help="For a dataset: one table per data file.")] = False,
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
    num_rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="Number of rows.")] = 10,
    columns: Columns = None,
    filter: Filter = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """The first rows, or the first rows that match a filter."""


@implemented_in("rows")
def search(
    uri: DatasetUri,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="The words to look for.")],
    num_rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="Number of rows.")] = 10,
    in_columns: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="NAME", help="Look in this column; repeated. By default in all with an index."),
    ] = None,
    all_words: Annotated[bool, typer.Option("--all", help="Rows with all words, not with one of them.")] = False,
    phrase: Annotated[bool, typer.Option("--phrase", help="Rows with the words one after another.")] = False,
    columns: Columns = None,
    filter: Filter = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """The rows that match words best, by full-text indices."""
    if all_words and phrase:
        raise typer.BadParameter("--all and --phrase exclude each other")
    if (all_words or phrase) and not in_columns:
        raise typer.BadParameter("--all and --phrase need a column, --in NAME")


@implemented_in("rows")
def count(
    uri: DatasetUri,
    filter: Filter = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """The number of rows; without a filter it reads no data."""


@implemented_in("write_report")
def write(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help=SOURCES, show_default=False)],
    uri: DatasetUri,
    mode: Annotated[
        Literal["create", "append", "overwrite"],
        typer.Option("--mode", "-m", help="Create a table, append rows, or write a new version with these rows only."),
    ] = "create",
    format: SourceFormatOption = None,
    csv_type: CsvTypes = None,
    csv_delimiter: CsvDelimiter = None,
    max_rows_per_file: Annotated[
        int | None,
        typer.Option("--max-rows-per-file", min=1, help="Maximal number of rows of a data file (and fragment)."),
    ] = None,
    data_storage_version: Annotated[
        str | None,
        typer.Option("--data-storage-version", help="File version: 2.0, 2.1, 2.2, stable; by default the table's."),
    ] = None,
    commit_message: Annotated[str | None, typer.Option("--commit-message", help="Stored with the version.")] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Write rows of files to a dataset, as one new version."""


# -- changes -----------------------------------------------------------------------------------------------------------


@implemented_in("change")
def delete(
    uri: DatasetUri,
    predicate: Annotated[
        str, typer.Argument(metavar="PREDICATE", help="A filter, such as \"price > 40 AND drink = 'mate'\".")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Delete the rows that match a filter, as a new version; older versions keep them.

    On a terminal, shows the number of rows and asks for confirmation.
    """


@implemented_in("change_columns")
def update(
    uri: DatasetUri,
    assignment: Annotated[
        list[str], typer.Argument(metavar="COLUMN=EXPRESSION...", help='Such as "price=price * 1.1".')
    ],
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="TEXT", help="Only rows that match this filter.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Change values of the rows that match a filter, as a new version; older versions keep the old values.

    All expressions see the old values of the row. On a terminal, shows the number of rows and asks for confirmation.
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
        typer.Option("--when-matched", help="Rows of the table with the key of a source row."),
    ] = "update",
    update_if: Annotated[
        str | None,
        typer.Option("--update-if", metavar="TEXT", help='Update only if this is true: "source.price > target.price".'),
    ] = None,
    when_not_matched: Annotated[
        Literal["insert", "nothing"], typer.Option("--when-not-matched", help="Source rows without a match.")
    ] = "insert",
    when_not_matched_by_source: Annotated[
        Literal["keep", "delete"],
        typer.Option("--when-not-matched-by-source", help="Rows of the table without a match."),
    ] = "keep",
    delete_if: Annotated[
        str | None,
        typer.Option("--delete-if", metavar="TEXT", help="Of these, delete only rows that match this filter."),
    ] = None,
    format: SourceFormatOption = None,
    csv_type: CsvTypes = None,
    csv_delimiter: CsvDelimiter = None,
    memory_limit: Annotated[
        int | None, typer.Option("--memory-limit", min=1, help="Memory of the merge in bytes; the rest spills to disk.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Merge rows of files into a table by a key, as one new version: update matching rows, insert the others.

    The files may lack columns of the table. On a terminal, shows the numbers of rows and asks for confirmation.
    """
    if update_if is not None and when_matched != "update":
        raise UsageError(f"--update-if needs --when-matched update, not {when_matched}")
    if delete_if is not None and when_not_matched_by_source != "delete":
        raise UsageError("--delete-if needs --when-not-matched-by-source delete")


@implemented_in("change_columns")
def add_column(
    uri: DatasetUri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new column.", show_default=False)],
    expression: Annotated[
        str | None, typer.Argument(metavar="[EXPRESSION]", help='Its values, such as "price * 2".', show_default=False)
    ] = None,
    type: Annotated[
        str | None, typer.Option("--type", "-t", metavar="TYPE", help="Arrow type of a column of nulls.")
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Add a column: with the values of an expression, or with nulls of a type. Writes nothing else."""
    if (expression is None) == (type is None):
        raise UsageError("add-column needs an expression, or --type for a column of nulls: one of them")


@implemented_in("change_columns")
def drop_column(
    uri: DatasetUri,
    name: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Columns; `a.b` for a member.", show_default=False)
    ],
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Remove columns from the schema, as a new version; a compaction and a cleanup free their space."""


@implemented_in("branching")
def branch(
    uri: DatasetUri,
    action: Annotated[Literal["list", "create", "delete"], typer.Argument(help="What to do.", show_default=False)],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the branch.", show_default=False)
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", "-v", min=0, help="Version where the new branch begins; the newest by default."),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Begin the branch at the version with this tag.")] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="BRANCH", help="Begin the branch on this branch instead of main.")
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """List, create and delete branches: lines of versions that begin at another version, without a copy."""
    if (action == "list") != (name is None):
        raise UsageError("branch list takes no name" if action == "list" else f"branch {action} needs a name")
    if action != "create" and any(option is not None for option in (version, tag, of)):
        raise UsageError(f"branch {action} takes no --version, --tag or --of")
    if tag is not None and any(option is not None for option in (version, of)):
        raise UsageError("--tag cannot be combined with --version or --of")


@implemented_in("branching")
def clone(
    uri: DatasetUri,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="URI of the clone.", show_default=False)],
    deep: Annotated[
        bool, typer.Option("--deep", help="Copy all files, so that the clone does not depend on the source.")
    ] = False,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    target_storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--target-storage-option", metavar="KEY=VALUE", help="As --storage-option, for the clone's store."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Clone a version as a new table, which refers to the files of the source or copies them."""


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
    """Differences between two versions: rows inserted, updated and deleted, columns, fragments."""


@implemented_in("change")
def restore(
    uri: DatasetUri,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Make an older version (--version or --tag) the newest again, as a new version."""
    if version is None and tag is None:
        raise UsageError("restore needs --version or --tag")


@implemented_in("change")
def tag(
    uri: DatasetUri,
    action: Annotated[
        Literal["list", "create", "update", "delete"], typer.Argument(help="What to do.", show_default=False)
    ],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the tag.", show_default=False)] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", "-v", min=0, help="Version of the tag for create and update; the newest by default."),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """List, create, update and delete tags. `cleanup` keeps versions with a tag."""
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
        int | None, typer.Option("--retain-versions", metavar="N", min=1, help="All versions except the latest N.")
    ] = None,
    delete_unverified: Annotated[
        bool,
        typer.Option(
            "--delete-unverified",
            help="Also unreferenced files younger than 7 days. Only safe if no writer is active.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the removals; the default without --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove them.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Remove old versions and unreferenced files. Without --yes, only show the removals.

    Without --older-than and --retain-versions: versions older than two weeks. These stay: the newest version, versions
    younger than ten minutes unless --older-than is 0s, and versions that tags and branches refer to.
    """
    if dry_run and yes:
        raise UsageError("--dry-run and --yes contradict each other")


@implemented_in("compact")
def compact(
    uri: DatasetUri,
    target_rows: Annotated[
        int | None,
        typer.Option("--target-rows", min=1, help="Target number of rows of a fragment; 1,048,576 by default."),
    ] = None,
    mode: Annotated[
        Literal["reencode", "try_binary_copy", "force_binary_copy"] | None,
        typer.Option("--mode", help="Encode pages again, or copy them unchanged if possible."),
    ] = None,
    max_fragments: Annotated[
        int | None, typer.Option("--max-fragments", min=1, help="Maximal number of fragments to compact.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=1, help="Maximal size of the compacted fragments in bytes.")
    ] = None,
    memory_limit: Annotated[int | None, typer.Option("--memory-limit", min=1, help="Memory for rows in bytes.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read the new files back before the commit.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show fragments, bytes, requests and cost.")] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="NAME", help="With --dry-run: estimate for this store."),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Merge small fragments, without their deleted rows."""
    if store is not None and not dry_run:
        raise UsageError("--store needs --dry-run")


# -- cost of reading --------------------------------------------------------------------------------------------------


@implemented_in("explain_report")
def explain(
    uri: DatasetUri,
    take: Annotated[
        str | None, typer.Option("--take", metavar="ROWS", help="Explain a take of these rows, such as 0,5,100-104.")
    ] = None,
    take_random: Annotated[
        int | None, typer.Option("--take-random", metavar="N", min=0, help="Explain a take of N random rows.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random rows.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Of a scan: number of rows.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Of a scan: rows to skip.")] = None,
    all_requests: Annotated[bool, typer.Option("--all", help="Show every request.")] = False,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="NAME",
            help="Estimate time and cost for this store: s3, s3-express, gcs, azure or minio.",
        ),
    ] = None,
    columns: Columns = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Show the requests of a scan (or a take), round by round, and their expected cost.

    Reads the metadata that it needs, as the scan would; never data.
    """
    if take is not None and take_random is not None:
        raise UsageError("--take and --take-random exclude each other")
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
    scans: Annotated[bool, typer.Option("--scan/--no-scan", help="Scan each column, and all columns.")] = True,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random rows.")] = 0,
    bucket: Annotated[
        bool,
        typer.Option("--bucket", help="Measure the store, with temporary objects of up to 32 MiB below URI."),
    ] = False,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Scan each column and take random rows: rows per second, bytes, requests.

    Takes are measured warm, after a first cold one, which is shown too. The operating system's cache is not cleared.

    For a bucket (s3://bucket, or --bucket): latency of GET, PUT and LIST, bandwidth, requests per second, whether
    create-if-absent works; and the storage options with these measurements. Writes temporary objects.
    """
    take_sizes(take_rows)


@implemented_in("doctor")
def doctor(
    uri: DatasetUri,
    no_write: Annotated[bool, typer.Option("--no-write", help="Do not try a conditional put.")] = False,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Show a store's settings and their origins, and test each step: resolve, connect, list, read, conditional put.

    Secrets are not shown. The object of the conditional put is deleted again. Exit code 1 if a step fails.
    """
