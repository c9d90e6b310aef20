"""Reads a file or a table by every way the public API has, and judges what comes back.

Allowed: data of the declared schema and number of rows in valid arrays, or one of three errors. A way that fails does
not keep the others from being tried.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lance_io
from lance_io.errors import FormatError, NotFound, UnsupportedError, UsageError
from lance_io.file import AsyncFileReader, LanceFileReader

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ALLOWED = (FormatError, UnsupportedError, NotFound)
# Value ranges, which only `validate_on_decode` checks: text, decimals, times, dates.
VALUE_RANGE = re.compile(
    "Invalid UTF8|does not fit in precision|not within the acceptable range|does not represent a whole number of days"
)
ROWS_MAX = 1 << 24  # a file without columns may declare any number of rows


@dataclass
class Verdict:
    """What happened to one damaged file: how many ways gave data, which errors came, and what must not have been.

    other_rows  answers of a damaged index that differ from those of a scan
    """

    read: int = 0
    other_rows: int = 0
    errors: list[Exception] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def attempt(self, what: str, act: Callable[[], Any]) -> Any:
        """Run one way; None when it failed as it may."""
        try:
            result = act()
        except ALLOWED as error:
            self.errors.append(error)
            return None
        except BaseException as error:  # panics are no `Exception`
            self.findings.append(f"{what}: {type(error).__name__}: {str(error)[:300]}\n{_last_lines(error)}")
            return None
        self.read += 1
        return result

    def check_place(self, where: tuple[str, ...]) -> None:
        """Damage in one column or page must be reported as lying there."""
        for error in self.errors:
            text = str(error)
            if not all(re.search(rf"{re.escape(word)}\b", text) for word in where):
                self.findings.append(f"expected {where} in the message: {type(error).__name__}: {text[:300]}")


def _last_lines(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return "\n".join(f"    {Path(f.filename).name}:{f.lineno} {f.line}" for f in frames)


class WrongResult(Exception):
    """Data that contradicts its own declaration."""


def check_data(data: pa.Table | pa.RecordBatch, schema: pa.Schema, num_rows: int) -> None:
    """Raise unless these are `num_rows` valid rows of `schema`."""
    if data.num_rows != num_rows:
        raise WrongResult(f"{data.num_rows} rows instead of {num_rows}")
    if data.schema != schema:
        raise WrongResult(f"schema {data.schema} instead of {schema}")
    for column in data.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if not VALUE_RANGE.search(str(error)):
                raise WrongResult(f"invalid array of {column.type}: {error}") from None


def read_file(path: str, dice: random.Random) -> Verdict:
    """One data file."""
    verdict = Verdict()
    if dice.random() < 0.1:
        verdict.attempt("async", lambda: asyncio.run(_read_async(path)))
        return verdict
    reader = verdict.attempt("open", lambda: LanceFileReader(path))
    if reader is None:
        return verdict
    schema, rows = reader.schema, reader.num_rows()
    if not len(schema) or rows < 0:
        return verdict

    def scan() -> None:
        check_data(reader.read_all(batch_size=dice.choice((64, 1000, 10**6))).to_table(), schema, rows)

    def part() -> None:
        start, end = sorted(dice.randrange(min(rows, ROWS_MAX) + 1) for _ in range(2))
        check_data(reader.read_range(start, end - start).to_table(), schema, end - start)

    def take() -> None:
        wanted = sorted(dice.randrange(rows) for _ in range(dice.choice((1, 3, 40)))) if rows else []
        check_data(reader.take_rows(wanted, batch_size=10**6).to_table(), schema, len(wanted))

    ways = {"scan": scan, "range": part, "take": take, "metadata": reader.metadata, "stats": reader.file_statistics}
    for name in dice.sample(list(ways), len(ways)):
        verdict.attempt(name, ways[name])
    return verdict


async def _read_async(path: str) -> None:
    async with AsyncFileReader(path) as reader:
        batches = [batch async for batch in reader.read_all()]
        if len(reader.schema):
            check_data(pa.Table.from_batches(batches, reader.schema), reader.schema, reader.num_rows())
            await reader.take_rows([0] if reader.num_rows() else [])


def read_table(uri: str, dice: random.Random) -> Verdict:
    """One dataset."""
    verdict = Verdict()
    dataset = verdict.attempt("open", lambda: lance_io.dataset(uri))
    if dataset is None:
        return verdict
    schema = verdict.attempt("schema", lambda: dataset.scanner().projected_schema)  # blobs come as descriptions
    if schema is None:
        return verdict
    rows = verdict.attempt("count", dataset.count_rows)

    def scan() -> None:
        if rows is not None:
            check_data(dataset.to_table(batch_size=dice.choice((50, 8192))), schema, rows)

    def ids() -> None:
        names = [name for name in schema.names if "." not in name][:1]  # which would be a path
        table = dataset.to_table(columns=names, with_row_id=True, with_row_address=True)
        check_data(table, table.schema, rows if rows is not None else len(table))

    def take() -> None:
        if rows:
            wanted = [dice.randrange(rows) for _ in range(dice.choice((1, 5, 50)))]
            check_data(dataset.take(wanted), schema, len(wanted))

    def take_rows() -> None:
        table = dataset.to_table(columns=[], with_row_id=True)
        found = table["_rowid"].to_pylist()
        if found:
            wanted = [dice.choice(found) for _ in range(10)]
            check_data(dataset._take_rows(wanted), schema, 10)

    def filtered() -> None:
        if "i" in schema.names and pa.types.is_integer(schema.field("i").type):
            table = dataset.to_table(filter=pa.compute.field("i") > 50)
            check_data(table, schema, len(table))

    def blobs() -> None:
        if "b" in schema.names and rows and pa.types.is_struct(schema.field("b").type):
            wanted = [dice.randrange(rows) for _ in range(4)]
            with suppress(UsageError):  # a fragment without that column is refused as a wrong call
                for blob in dataset.take_blobs("b", indices=wanted):
                    if blob is not None:
                        blob.read(1 << 20)

    def binaries() -> None:
        scanner = dataset.scanner(blob_handling="all_binary")
        if rows is not None and scanner.projected_schema != schema:
            check_data(scanner.to_table(), scanner.projected_schema, rows)

    def listing() -> None:
        dataset.versions()
        for fragment in dataset.get_fragments():
            fragment.count_rows()

    def checked() -> None:
        lance_io.dataset(uri, read_params={"validate_on_decode": True}).to_table().validate(full=True)

    ways = {f.__name__: f for f in (scan, ids, take, take_rows, filtered, blobs, binaries, listing)}
    for name in dice.sample(list(ways), len(ways)):
        verdict.attempt(name, ways[name])
    verdict.attempt("checked", checked)
    return verdict
