"""Tables written by pylance, and a way to run the program on them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lance_io.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FRAGMENT_ROWS = 3000


def rows(start: int, num_rows: int) -> pa.Table:
    """Columns that are stored in every layout: mini-block, full-zip, constant, with lists and structs."""
    chance = np.random.default_rng(start)
    numbers = range(start, start + num_rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "word": [("red", "green", "blue")[i % 3] for i in numbers],
            "text": [chance.bytes(9).hex() for _ in numbers],
            "items": [list(range(i % 4)) if i % 5 else None for i in numbers],
            "point": [{"x": i, "y": i / 2} for i in numbers],
            "wide": pa.array([chance.bytes(400) for _ in numbers], pa.binary()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(chance.random(num_rows * 64, np.float32)), 64),
            "nothing": pa.nulls(num_rows, pa.int32()),
        }
    )


def write_table(uri: str, version: str, **options: Any) -> lance.LanceDataset:
    """Three fragments, deletions in two of them, four versions, a tag."""
    for number in range(3):
        mode = "append" if number else "create"
        part = rows(number * FRAGMENT_ROWS, FRAGMENT_ROWS)
        lance.write_dataset(part, uri, mode=mode, data_storage_version=version, **options)
    dataset = lance.dataset(uri, **options)
    dataset.delete(f"id % 7 = 3 and id < {FRAGMENT_ROWS + 500}")
    dataset.tags.create("second", 2)
    return lance.dataset(uri, **options)


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed does not depend on the terminal, or the lack of one, that the tests run in."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("typer.rich_utils.FORCE_TERMINAL", None)  # as it is where a service runs the tests


@pytest.fixture(scope="session")
def write() -> Callable[..., lance.LanceDataset]:
    """The function `write_table`."""
    return write_table


@pytest.fixture(scope="package", params=["2.1", "2.2"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """The table above, on local disk, in each file version."""
    return write_table(str(tmp_path_factory.mktemp("cli") / "table.lance"), request.param)


@dataclass
class Ran:
    """What a run of the program gave."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        """Its JSON."""
        assert self.code == 0, self.err
        return json.loads(self.out)


def lance_io(*arguments: object) -> Ran:
    """Run `lance-io` with these arguments; what is no expected failure comes out as it is."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def run() -> Any:
    """The function `lance_io`."""
    return lance_io


@pytest.fixture(scope="package")
def data_file(table: lance.LanceDataset) -> Path:
    """A data file of the table."""
    from pathlib import Path

    return Path(table.uri) / "data" / table.get_fragments()[0].data_files()[0].path
