"""Random nested types in version 0.1: both libraries write the same bytes, and read each other's rows in every way."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from tests.dataset.v0_1.test_batched_writing import LEGACY, data_files
from tests.encodings.cases import random_rows

if TYPE_CHECKING:
    from pathlib import Path

TYPES = int(os.environ.get("LANCE_IO_RANDOM_TYPES", "30"))
LEAVES = [
    *(pa.int8(), pa.uint32(), pa.int64(), pa.bool_(), pa.float32(), pa.string(), pa.large_string(), pa.binary(5)),
    *(pa.null(), pa.list_(pa.int16(), 3), pa.list_(pa.bool_(), 5), pa.list_(pa.list_(pa.float64(), 2), 2)),
]


def some_type(dice: random.Random, depth: int) -> pa.DataType:
    if depth == 0 or dice.random() < 0.2:
        return dice.choice(LEAVES)
    match dice.randrange(3):
        case 0:
            return pa.struct([(f"m{at}", some_type(dice, depth - 1)) for at in range(dice.randint(1, 3))])
        case 1:
            return pa.list_(some_type(dice, depth - 1))
        case _:
            return pa.large_list(some_type(dice, depth - 1))


@pytest.mark.filterwarnings("ignore:files of version 0.1 hold no nulls:UserWarning")
@pytest.mark.parametrize("seed", range(TYPES))
def test_random_nested_types(seed: int, tmp_path: Path, as_pylance: None) -> None:
    dice = random.Random(seed)
    null, empty = dice.choice([(0.0, 0.0), (0.2, 0.3), (0.5, 0.1)])
    columns = {f"c{at}": random_rows(some_type(dice, 4), 150, null, empty, seed + at) for at in range(3)}
    options = {"max_rows_per_group": dice.choice((1, 7, 64)), "max_rows_per_file": 100, **LEGACY}
    rows = pa.table(columns)
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    lance.write_dataset(rows, theirs, **options)
    lance_io.write_dataset(rows, ours, **options)
    assert data_files(ours) == data_files(theirs)
    want, table = lance.dataset(theirs).to_table(), lance_io.dataset(theirs)
    assert table.to_table().to_pylist() == want.to_pylist()
    assert lance.dataset(ours).to_table().to_pylist() == want.to_pylist()
    wanted = [dice.randrange(150) for _ in range(30)]
    assert table.take(wanted).to_pylist() == want.take(wanted).to_pylist()
    start, end = sorted(dice.randrange(151) for _ in range(2))
    assert table.to_table(offset=start, limit=end - start).to_pylist() == want.slice(start, end - start).to_pylist()
    for name in want.column_names:
        assert table.to_table(columns=[name]).to_pylist() == want.select([name]).to_pylist()
