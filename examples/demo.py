"""A tour in half a minute: write a table, open it, scan, take, filter, change it, and see the cost of each step.

    make demo                                         or
    python examples/demo.py --rows 1000000            more rows
    python examples/demo.py --keep /tmp/orders.lance  keep the table to play with; an s3:// URI works, too

By default the table is on local disk, and no server is needed. The tour compares every answer, and every version it
writes, with pylance (module `lance`) on the same files.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

import lance_io

DRINKS = ["assam", "cocoa", "earl grey", "espresso", "gunpowder", "mate", "oolong", "rooibos", "sencha", "water"]
FRAGMENT_ROWS = 100_000
VECTOR_WIDTH = 32


def make_orders(first_id: int, num_rows: int, rng: np.random.Generator) -> pa.Table:
    """`num_rows` orders of a tea shop, with a column for each kind of type."""
    quantities = rng.integers(1, 50, num_rows)
    tag_offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 4, num_rows))]).astype(np.int32)
    return pa.table(
        {
            "id": np.arange(first_id, first_id + num_rows),
            "token": [f"{token:016x}" for token in rng.integers(0, 1 << 63, num_rows).tolist()],
            "drink": pa.array(np.array(DRINKS)[rng.integers(0, len(DRINKS), num_rows)]),
            "price": np.round(rng.gamma(2.0, 4.0, num_rows), 2),
            "quantity": pa.array(quantities, mask=quantities > 45),
            "ordered": pa.array(1_760_000_000 + 60 * (first_id + np.arange(num_rows)), pa.timestamp("s")),
            "tags": pa.ListArray.from_arrays(tag_offsets, rng.integers(0, 1000, int(tag_offsets[-1]))),
            "embedding": pa.FixedSizeListArray.from_arrays(
                rng.standard_normal(num_rows * VECTOR_WIDTH, dtype=np.float32), VECTOR_WIDTH
            ),
        }
    )


def order_batches(num_rows: int) -> Iterator[pa.RecordBatch]:
    """The whole table, one batch for each fragment; the same in every run."""
    rng = np.random.default_rng(seed=7)
    for first_id in range(0, num_rows, FRAGMENT_ROWS):
        yield from make_orders(first_id, min(FRAGMENT_ROWS, num_rows - first_id), rng).to_batches()


@dataclass(frozen=True)
class Step:
    """A step of the tour, and its cost."""

    name: str
    answer: str
    seconds: float
    requests: int
    read_bytes: int
    written_bytes: int


class Tour:
    """Runs steps on an open table, prints each with its answer, and records its cost."""

    def __init__(self, console: Console, uri: str) -> None:
        self.console = console
        self.peer = lance.dataset(uri)
        self.steps: list[Step] = []

    def step(self, name: str, code: str, run: Callable[[], tuple[Any, Any, str]]) -> Any:
        """Show `code`, run it, record its cost; `run` returns (result, the dataset that did the I/O, answer)."""
        self.console.print()
        self.console.print(f"[bold cyan]{name}[/]")
        self.console.print(Syntax(code, "python", theme="ansi_dark", background_color="default"))
        started = time.perf_counter()
        result, dataset, answer = run()
        seconds = time.perf_counter() - started
        spent = dataset.io_stats_incremental()
        requests = spent.read_iops + spent.write_iops
        self.steps.append(Step(name, answer, seconds, requests, spent.read_bytes, spent.write_bytes))
        written = f", {in_bytes(spent.write_bytes)} written" if spent.write_bytes else ""
        self.console.print(
            f"  [green]->[/] {answer}  [dim]{seconds * 1e3:,.1f} ms, {count(requests, 'request')},"
            f" {in_bytes(spent.read_bytes)} read{written}[/]"
        )
        return result

    def same(self, result: Any, expected: Any) -> None:
        """Stop the tour if `result` differs from pylance's."""
        if result != expected:
            raise SystemExit("The answer differs from pylance's. This is a bug in lance_io: please report it.")


def count(number: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def in_bytes(size_bytes: int) -> str:
    """A size in bytes as text for people."""
    if size_bytes < 10_000:
        return count(size_bytes, "byte")
    return f"{size_bytes / 1e3:,.0f} kB" if size_bytes < 10_000_000 else f"{size_bytes / 1e6:,.1f} MB"


def show_rows(console: Console, rows: pa.Table) -> None:
    """Print a few rows as a table."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows.column_names:
        grid.add_column(name, overflow="ellipsis", no_wrap=True)
    for row in rows.to_pylist():
        grid.add_row(*("[dim]null[/]" if value is None else str(value) for value in row.values()))
    console.print(grid)


def write_table(console: Console, uri: str, num_rows: int) -> int:
    """Write the table; returns its size in bytes."""
    console.print(f"[bold]A table of {num_rows:,} orders[/]")
    code = "lance_io.write_dataset(batches, uri, schema=schema, max_rows_per_file=100_000)"
    console.print(Syntax(code, "python", theme="ansi_dark", background_color="default"))
    schema = make_orders(0, 1, np.random.default_rng()).schema
    started = time.perf_counter()
    try:
        written = lance_io.write_dataset(order_batches(num_rows), uri, schema=schema, max_rows_per_file=FRAGMENT_ROWS)
    except OSError as error:
        raise SystemExit(f"cannot write {uri}: {error}") from error
    seconds = time.perf_counter() - started
    size_bytes = int(written.versions()[-1]["metadata"]["total_files_size"])
    console.print(f"  [green]->[/] {uri}: {in_bytes(size_bytes)}  [dim]{seconds:,.1f} s[/]")
    return size_bytes


def tour(console: Console, uri: str) -> list[Step]:
    """Open, scan, take and filter the table at `uri`, and compare each answer with pylance's."""
    guide = Tour(console, uri)
    peer = guide.peer

    def opening() -> tuple[Any, Any, str]:
        ds = lance_io.dataset(uri)
        return ds, ds, f"{len(ds.schema)} columns, {len(ds.get_fragments())} fragments"

    ds = guide.step("Open", "ds = lance_io.dataset(uri)", opening)
    guide.same(ds.schema, peer.schema)

    rows = guide.step("Count", "ds.count_rows()", lambda: (n := ds.count_rows(), ds, f"{n:,} rows, from the manifest"))
    guide.same(rows, peer.count_rows())

    def one_column() -> tuple[Any, Any, str]:
        table = ds.to_table(columns=["price"])
        return table, ds, f"the mean price is {pc.mean(table['price']).as_py():.4f}"

    prices = guide.step("Scan a column", 'pc.mean(ds.to_table(columns=["price"])["price"])', one_column)
    guide.same(prices, peer.to_table(columns=["price"]))

    def everything() -> tuple[Any, Any, str]:
        table = ds.to_table()
        return table, ds, f"{table.num_rows:,} rows, {in_bytes(table.nbytes)} of Arrow"

    guide.same(guide.step("Scan everything", "ds.to_table()", everything), peer.to_table())

    picks = random.Random(7).sample(range(rows), 5)
    columns = ["id", "token", "drink", "price", "quantity", "tags"]

    def five_rows() -> tuple[Any, Any, str]:
        rows = ds.take(picks, columns=columns)
        return rows, ds, f"{rows.num_rows} random rows"

    taken = guide.step("Take five rows", f"ds.take({picks}, columns=[...])", five_rows)
    guide.same(taken, peer.take(picks, columns=columns))
    show_rows(console, taken)

    others = random.Random(8).sample(range(rows), 5)

    def five_more() -> tuple[Any, Any, str]:
        rows = ds.take(others, columns=columns)
        return rows, ds, "with cached metadata"

    guide.same(
        guide.step("Take five others", f"ds.take({others}, columns=[...])", five_more),
        peer.take(others, columns=columns),
    )

    wanted = (pc.field("drink") == "oolong") & (pc.field("price") > 40)

    def filtering() -> tuple[Any, Any, str]:
        matches = ds.to_table(columns=["id", "drink", "price", "quantity"], filter=wanted)
        return matches, ds, count(matches.num_rows, "order") + " match"

    expensive = guide.step(
        "Filter",
        'costly = (pc.field("drink") == "oolong") & (pc.field("price") > 40)\n'
        'ds.to_table(columns=["id", "drink", "price", "quantity"], filter=costly)',
        filtering,
    )
    guide.same(expensive, peer.to_table(columns=["id", "drink", "price", "quantity"], filter=wanted))
    show_rows(console, expensive.slice(0, 5))

    keys = random.Random(9).sample(range(rows), 100)

    async def lookups() -> tuple[Any, Any, str]:
        table = lance_io.AsyncDataset.of(ds)
        rows = await asyncio.gather(*(table.take([key], columns=["token"]) for key in keys))
        return pa.concat_tables(rows), ds, f"{len(rows)} concurrent lookups"

    tokens = guide.step(
        "Async",
        "table = lance_io.AsyncDataset.of(ds)\nawait asyncio.gather(*(table.take([key]) for key in keys))",
        lambda: asyncio.run(lookups()),
    )
    guide.same(tokens, peer.take(keys, columns=["token"]))
    changes(guide, ds, uri)
    return guide.steps


def changes(guide: Tour, ds: lance_io.LanceDataset, uri: str) -> None:
    """Change the table in four versions, the last of which restores the first; pylance reads each of them."""
    num_rows = ds.count_rows()
    more = make_orders(num_rows, 1000, np.random.default_rng(seed=8))

    def appending() -> tuple[Any, Any, str]:
        ds.insert(more)
        return ds.count_rows(), ds, f"version {ds.version}, {ds.count_rows():,} rows"

    guide.same(guide.step("Append", "ds.insert(more)", appending), lance.dataset(uri).count_rows())

    def deleting() -> tuple[Any, Any, str]:
        deleted = ds.delete("drink = 'water'")["num_deleted_rows"]
        return ds.count_rows(), ds, f"version {ds.version}, {count(deleted, 'row')} less; includes loading the parser"

    left = guide.step("Delete", "ds.delete(\"drink = 'water'\")", deleting)
    guide.same(left, lance.dataset(uri).count_rows("drink != 'water'"))

    def tagging() -> tuple[Any, Any, str]:
        ds.tags.create("dry")
        return ds.tags.get_version("dry"), ds, f"version {ds.version} has a name"

    guide.same(guide.step("Tag", 'ds.tags.create("dry")', tagging), lance.dataset(uri, "dry").version)

    def restoring() -> tuple[Any, Any, str]:
        first = ds.checkout_version(1)
        first.restore()
        return first.count_rows(), first, f"version {first.version} has the rows of version 1"

    rows = guide.step("Restore", "ds.checkout_version(1).restore()", restoring)
    guide.same((rows, num_rows), (lance.dataset(uri).count_rows(), num_rows))


def summary(console: Console, steps: list[Step], size_bytes: int) -> None:
    """Print all steps in a table: time, requests, bytes, and the share of the stored table that was read."""
    grid = Table(title="Read and written", box=box.ROUNDED, title_style="bold")
    grid.add_column("step")
    for name in ("time", "requests", "read", "share", "written"):
        grid.add_column(name, justify="right")
    for step in steps:
        share = f"{step.read_bytes / size_bytes:.2%}"
        time_taken = f"{step.seconds * 1e3:,.1f} ms"
        written = in_bytes(step.written_bytes) if step.written_bytes else ""
        grid.add_row(step.name, time_taken, f"{step.requests:,}", in_bytes(step.read_bytes), share, written)
    console.print()
    console.print(grid)
    console.print("Every answer equals pylance's. Times are of one run; `make bench` measures.")


def main() -> None:
    """Parse the command line and take the tour."""
    parser = argparse.ArgumentParser(description="A tour of lance_io on a generated table.")
    parser.add_argument("--rows", type=int, default=300_000, help="rows of the table (default: 300000)")
    parser.add_argument("--keep", metavar="URI", help="write the table to this URI and keep it")
    options = parser.parse_args()
    if options.rows < 1000:
        parser.error("--rows must be at least 1000")

    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="lance-io-demo-") as folder:
        uri = options.keep or f"{folder}/orders.lance"
        size_bytes = write_table(console, uri, options.rows)
        summary(console, tour(console, uri), size_bytes)


if __name__ == "__main__":
    main()
