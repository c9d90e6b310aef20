"""Checks that the table has every sent row once and unchanged, column by column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SHOWN = 5


def expected_table(batches: list[pa.Table], corrections: pa.Table | None = None) -> pa.Table:
    """The expected table: the sent rows, with `words` counted here, and null where no language was sent.

    corrections  rows whose texts replace those of the same ids
    """
    sent = pa.concat_tables(batches, promote_options="default")
    if corrections is not None:
        new = dict(zip(corrections["id"].to_pylist(), corrections["text"].to_pylist(), strict=True))
        texts = [new.get(row["id"], row["text"]) for row in sent.select(["id", "text"]).to_pylist()]
        sent = sent.set_column(sent.column_names.index("text"), "text", pa.array(texts, pa.string()))
    words = [len(text.split()) for text in sent["text"].to_pylist()]
    return sent.append_column("words", pa.array(words, pa.int32()))


def differences(actual: pa.Table, expected: pa.Table) -> list[str]:
    """A sentence for every kind of difference; none if the tables have the same rows, in any order."""
    ids, counts = np.unique(actual["id"].to_numpy(), return_counts=True)
    wanted = expected["id"].to_numpy()
    sentences = [
        _sentence("are missing", np.setdiff1d(wanted, ids)),
        _sentence("are there more than once", ids[counts > 1]),
        _sentence("were not sent", np.setdiff1d(ids, wanted)),
    ]
    if not any(sentences):
        sentences += _other_values(actual.sort_by("id"), expected.sort_by("id"))
    return [sentence for sentence in sentences if sentence]


def _sentence(problem: str, ids: np.ndarray) -> str:
    if not len(ids):
        return ""
    some = ", ".join(map(str, ids[:SHOWN].tolist()))
    return f"rows that {problem}: {len(ids):,} (id {some}{', ...' if len(ids) > SHOWN else ''})"


def _other_values(actual: pa.Table, expected: pa.Table) -> list[str]:
    if sorted(actual.column_names) != sorted(expected.column_names):
        return [f"the columns are {', '.join(actual.column_names)}, not {', '.join(expected.column_names)}"]
    return [
        f"column {name} has other values than were sent"
        for name in expected.column_names
        if actual[name].combine_chunks() != expected[name].cast(actual.schema.field(name).type).combine_chunks()
    ]
