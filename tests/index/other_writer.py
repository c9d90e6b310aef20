"""A process that changes a table while another builds an index: for each line of its input an append and a delete.

It answers each line by one, with the number of the version that it has made.
"""

from __future__ import annotations

import sys

import pyarrow as pa

import lance_io

ROWS = 20


def main() -> None:
    """Change the table whose place is the first argument."""
    table = lance_io.dataset(sys.argv[1])
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        first = 1_000_000 + ROWS * number
        table.insert(pa.table({"k": range(first, first + ROWS), "c": [number % 7] * ROWS}))
        table.delete(f"k % 41 = {number}")
        print(table.version, flush=True)


if __name__ == "__main__":
    main()
