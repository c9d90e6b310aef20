"""Which column of a file holds which field."""

from __future__ import annotations

import random

from lance_io.file.open.file_source import DEAD, FileRef


def test_few_fields_are_found_where_all_are() -> None:
    dice = random.Random(1)
    for num_fields in (0, 1, 63, 64, 65, 300, 5_000):
        ids = dice.sample(range(10 * num_fields + 1), num_fields)
        dead = {place: dice.choice((DEAD, -1, -3)) for place in range(num_fields) if dice.random() < 0.1}
        field_ids = tuple(dead.get(place, each) for place, each in enumerate(ids))
        columns = [each if dice.random() < 0.9 else -1 for each in dice.sample(range(num_fields), num_fields)]
        column_indices = tuple(columns[: num_fields - dice.randrange(2)])  # version 0.1 may lack some
        plainly = {
            each: column
            for each, column in zip(field_ids, column_indices, strict=False)
            if each not in (-1, DEAD) and column >= 0
        }
        for count in (0, 1, 4, num_fields):
            asked = [*dice.choices((-1, DEAD, *ids, 10 * num_fields + 7), k=count)]
            fresh = FileRef("file", 0, field_ids, column_indices)
            expected = {each: plainly[each] for each in asked if each in plainly}
            assert fresh.columns_of(asked) == expected
            assert list(fresh.columns_of(asked)) == list(expected)
            assert fresh.columns == plainly
            assert fresh.columns_of(asked) == expected
        assert fresh == FileRef("file", 0, field_ids, column_indices)
