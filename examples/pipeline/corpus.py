"""The texts of the pipeline: generated, and always the same for the same id.

So any process can check a row: `mistake` returns its error.
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
CORRECTED_EVERY = 10  # every tenth text is corrected later
LANGUAGES = {
    "en": "the a kettle sings while tea leaves rest and rain taps on old windows near warm bread".split(),
    "de": "der die das Wasser kocht und leise dampft Tee neben Brot am Fenster wenn Regen fällt".split(),
    "fr": "le la une tasse de thé fume près du pain chaud quand il pleut sur les toits gris".split(),
}
SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string(), "vector": pa.list_(pa.float32())})


def language_of(row_id: int) -> str:
    """The language of a row's text."""
    return list(LANGUAGES)[row_id % len(LANGUAGES)]


def text_of(row_id: int) -> str:
    """The text of a row as it is sent first, 4 to 16 words."""
    draw = random.Random(row_id)
    return " ".join(draw.choices(LANGUAGES[language_of(row_id)], k=draw.randint(4, 16)))


def corrected_text_of(row_id: int) -> str:
    """The text of a row after its correction: one word more."""
    return f"{text_of(row_id)} again"


def is_corrected(row_id: int) -> bool:
    """Whether a text is corrected later."""
    return row_id % CORRECTED_EVERY == 0


def make_rows(ids: Sequence[int], *, with_language: bool = False) -> pa.Table:
    """The input rows with these ids, without the column that the job derives."""
    numbers = np.random.default_rng(seed=[ids[0], len(ids)]).standard_normal((len(ids), WIDTH), dtype=np.float32)
    offsets = np.arange(0, numbers.size + 1, WIDTH, dtype=np.int32)
    vectors = pa.ListArray.from_arrays(offsets, numbers.reshape(-1))
    rows = pa.table([pa.array(ids), pa.array(map(text_of, ids)), vectors], schema=SCHEMA)
    return rows.append_column("language", pa.array(map(language_of, ids))) if with_language else rows


def corrected(rows: pa.Table) -> pa.Table:
    """The rows whose texts are corrected, with their new texts."""
    chosen = rows.filter(pa.array([is_corrected(row_id) for row_id in rows["id"].to_pylist()]))
    texts = pa.array(map(corrected_text_of, chosen["id"].to_pylist()), pa.string())
    return chosen.set_column(chosen.column_names.index("text"), "text", texts)


def write_parquet(rows: pa.Table, folder: Path, name: str) -> None:
    """Write a Parquet file, which appears in the folder when complete: Spark skips names that begin with a dot."""
    unfinished = folder / f".{name}"
    pq.write_table(rows, unfinished)
    unfinished.rename(folder / name)


def mistake(row: dict[str, Any]) -> str | None:
    """The error in a row of the table (its vector is not checked); None if it is right."""
    texts = {text_of(row["id"])} | ({corrected_text_of(row["id"])} if is_corrected(row["id"]) else set())
    if row["text"] not in texts:
        return f"row {row['id']} has another text"
    if row["words"] != len(row["text"].split()):
        return f"row {row['id']} has {row['words']} words"
    if row.get("language") not in (None, language_of(row["id"])):
        return f"row {row['id']} is in another language"
    return None
