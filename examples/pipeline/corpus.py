"""The texts that go through the pipeline: made up, and the same for everybody who asks for the same id.

So whoever is given a row knows whether it is the right one: `mistake` says what is wrong with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WIDTH = 128  # floats of a vector
LANGUAGES = {
    "en": "the a kettle sings while tea leaves rest and rain taps on old windows near warm bread".split(),
    "de": "der die das Wasser kocht und leise dampft Tee neben Brot am Fenster wenn Regen fällt".split(),
    "fr": "le la une tasse de thé fume près du pain chaud quand il pleut sur les toits gris".split(),
}
SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string(), "vector": pa.list_(pa.float32())})


def language_of(row_id: int) -> str:
    """Which language the text of a row is in."""
    return list(LANGUAGES)[row_id % len(LANGUAGES)]


def text_of(row_id: int) -> str:
    """The text of a row, 4 to 16 words."""
    draw = random.Random(row_id)
    return " ".join(draw.choices(LANGUAGES[language_of(row_id)], k=draw.randint(4, 16)))


def make_rows(ids: Sequence[int], *, with_language: bool = False) -> pa.Table:
    """The rows of some ids, as they come from elsewhere: what the job derives is not in them."""
    numbers = np.random.default_rng(seed=[ids[0], len(ids)]).standard_normal((len(ids), WIDTH), dtype=np.float32)
    offsets = np.arange(0, numbers.size + 1, WIDTH, dtype=np.int32)
    vectors = pa.ListArray.from_arrays(offsets, numbers.reshape(-1))
    rows = pa.table([pa.array(ids), pa.array(map(text_of, ids)), vectors], schema=SCHEMA)
    return rows.append_column("language", pa.array(map(language_of, ids))) if with_language else rows


def write_parquet(rows: pa.Table, folder: Path, name: str) -> None:
    """A Parquet file that appears in the folder when it is complete: Spark passes over names with a dot in front."""
    unfinished = folder / f".{name}"
    pq.write_table(rows, unfinished)
    unfinished.rename(folder / name)


def mistake(row: dict[str, Any]) -> str | None:
    """What is wrong with a row of the table as somebody got it (its vector is not looked at); None when nothing is."""
    expected = text_of(row["id"])
    if row["text"] != expected:
        return f"row {row['id']} has another text"
    if row["words"] != len(expected.split()):
        return f"row {row['id']} has {row['words']} words"
    if row.get("language") not in (None, language_of(row["id"])):
        return f"row {row['id']} is in another language"
    return None
