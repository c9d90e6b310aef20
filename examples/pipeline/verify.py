"""Is every row there, once, and as it was sent? Asked of the table itself, column by column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SHOWN = 5


def expected_table(batches: list[pa.Table]) -> pa.Table:
    """What the table should hold, made of what was sent: `words` counted here, no language where none was sent."""
    sent = pa.concat_tables(batches, promote_options="default")
    words = [len(text.split()) for text in sent["text"].to_pylist()]
    return sent.append_column("words", pa.array(words, pa.int32()))


def differences(found: pa.Table, expected: pa.Table) -> list[str]:
    """One sentence for every kind of difference; none when the tables hold the same rows, in whatever order."""
    ids, counts = np.unique(found["id"].to_numpy(), return_counts=True)
    wanted = expected["id"].to_numpy()
    told = [
        _sentence("are missing", np.setdiff1d(wanted, ids)),
        _sentence("are there more than once", ids[counts > 1]),
        _sentence("nobody sent", np.setdiff1d(ids, wanted)),
    ]
    if not any(told):
        told += _other_values(found.sort_by("id"), expected.sort_by("id"))
    return [sentence for sentence in told if sentence]


def _sentence(what: str, ids: np.ndarray) -> str:
    if not len(ids):
        return ""
    some = ", ".join(map(str, ids[:SHOWN].tolist()))
    return f"rows that {what}: {len(ids):,} (id {some}{', ...' if len(ids) > SHOWN else ''})"


def _other_values(found: pa.Table, expected: pa.Table) -> list[str]:
    if sorted(found.column_names) != sorted(expected.column_names):
        return [f"the columns are {', '.join(found.column_names)}, not {', '.join(expected.column_names)}"]
    return [
        f"column {name} has other values than were sent"
        for name in expected.column_names
        if found[name].combine_chunks() != expected[name].cast(found.schema.field(name).type).combine_chunks()
    ]
