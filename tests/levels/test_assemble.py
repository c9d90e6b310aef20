"""Leaves that do not fit together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lance_io.errors import FormatError
from lance_io.format.schema import Field
from lance_io.levels.assemble import merge


def test_a_map_with_a_null_key_is_damage() -> None:
    """Arrow ends the process where it is given one."""
    members = (Field(2, "key", "null", nullable=False), Field(3, "value", "int32"))
    field = Field(0, "m", "map", children=(Field(1, "entries", "struct", nullable=False, children=members),))

    def leaves(offsets: list[int]) -> dict[int, pa.Array]:
        columns = {2: ("key", pa.nulls(offsets[-1])), 3: ("value", pa.array(range(offsets[-1]), pa.int32()))}
        lists = pa.array(offsets, pa.int32())
        return {
            number: pa.ListArray.from_arrays(lists, pa.StructArray.from_arrays([values], [name]))
            for number, (name, values) in columns.items()
        }

    assert merge(field, leaves([0, 0, 0]), 2).to_pylist() == [[], []]
    with pytest.raises(FormatError, match="map 'm' has 2 entries whose key is null"):
        merge(field, leaves([0, 1, 2]), 2)
