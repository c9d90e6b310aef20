"""Tables with an index of vectors each, whose files the campaign damages, and the searches that it asks of them.

A search compares all rows exactly where it refines as many candidates as there are rows. Then an answer is an error
that names the index and the file, or the answer of a comparison of all vectors; unless a row number or code has
changed, which no reader can see. In any case rows come once, are rows of the table, and a refined distance is exact.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

import lance_io
from tests.fuzz.damage import Damaged
from tests.fuzz.reading import Verdict, WrongResult

if TYPE_CHECKING:
    import random
    from pathlib import Path

INDEX_NAME = "the_index"
NUM_ROWS, DIM, PARTITIONS = 700, 8, 5
THEIRS, OURS = {"theirs": lance}, {"theirs": lance, "ours": lance_io}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "flat": ("IVF_FLAT", {}, OURS),
    "pq": ("IVF_PQ", {"num_sub_vectors": 2}, OURS),
    "sq": ("IVF_SQ", {}, OURS),
    "rq": ("IVF_RQ", {}, THEIRS),
    "graph": ("IVF_HNSW_SQ", {}, THEIRS),
}
WHOLE: dict[str, Any] = {"k": 20, "nprobes": PARTITIONS, "refine_factor": 40}
"""A search whose answer does not depend on codes."""
SEARCHES: list[dict[str, Any]] = [WHOLE, {"k": 5, "nprobes": 2}, {"k": 5}, {"k": 3, "nprobes": 1, "refine_factor": 2}]
_TEXTS = re.compile(rb"(distance_type|storage_metadata|lance:ivf|lance:index|lance:hnsw)")
_TEXT_BYTES = 400  # behind such a name, where digits are those of its JSON


def vector_rows(num_rows: int = NUM_ROWS, seed: int = 6) -> pa.Table:
    """Rows with vectors, some of them null."""
    rng = np.random.default_rng(seed)
    values = pa.array(rng.normal(size=num_rows * DIM).astype("f4"))
    mask = pa.array(rng.random(num_rows) < 0.05)
    vectors = pa.FixedSizeListArray.from_arrays(values, DIM, mask=mask)
    return pa.table({"i": range(num_rows), "v": vectors})


def make_vector_specimens(folder: Path) -> None:
    """Write them below `folder`."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "files").mkdir(exist_ok=True)
    for name, (kind, options, builders) in KINDS.items():
        for who, library in builders.items():
            for stable in (False, True):
                uri = str(folder / "tables" / f"{name}-{who}-{'ids' if stable else 'addresses'}.lance")
                lance.write_dataset(vector_rows(), uri, max_rows_per_file=400, enable_stable_row_ids=stable)
                table = library.dataset(uri)
                table.create_index("v", kind, INDEX_NAME, metric="l2", num_partitions=PARTITIONS, **options)
                lance.dataset(uri).delete("i % 11 = 7")
                lance.write_dataset(vector_rows(40, 7), uri, mode="append")


def vector_files(table: Path) -> list[Path]:
    """The files of its index."""
    return sorted(table.glob("_indices/*/*.idx"))


def damage_text(data: bytes, dice: random.Random) -> Damaged | None:
    """A digit of the JSON in the metadata changed, which leaves it JSON; None without one."""
    places = [
        at
        for name in _TEXTS.finditer(data)
        for at in range(name.end(), min(name.end() + _TEXT_BYTES, len(data)))
        if 48 <= data[at] < 58
    ]
    if not places:
        return None
    at = dice.choice(places)
    digit = dice.choice([number for number in b"0123456789" if number != data[at]])
    return Damaged(data[:at] + bytes([digit]) + data[at + 1 :], f"digit at {at}: {data[at] - 48} -> {digit - 48}")


def read_vectors(uri: str, is_other_length: bool, dice: random.Random) -> Verdict:
    """Ask the index of a table, of which one file is damaged.

    is_other_length  whether the file was cut or is longer, which has to be seen wherever it matters
    """
    verdict = Verdict()
    table = lance_io.dataset(uri)
    query = np.random.default_rng(dice.randrange(1 << 30)).normal(size=DIM).astype("f4")
    every = {"k": 2 * NUM_ROWS, "use_index": False}
    truth = verdict.attempt("without index", lambda: _nearest(table, query, every))
    for asked in dice.sample(SEARCHES, 2):
        num_errors = len(verdict.errors)
        answer = verdict.attempt(f"search {asked}", lambda asked=asked: _nearest(table, query, asked))
        _check_names(verdict, num_errors, str(asked))
        if answer is not None and truth is not None:
            _check_answer(verdict, asked, answer, truth, is_other_length)
    for what, act in (
        ("statistics", lambda: table.stats.index_stats(INDEX_NAME)),
        ("centroids", lambda: table.centroids(index_name=INDEX_NAME)),
        ("optimize", lambda: lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=10)),
    ):
        if dice.random() < 0.3:
            num_errors = len(verdict.errors)
            verdict.attempt(what, act)
            _check_names(verdict, num_errors, what)
    return verdict


def _nearest(table: Any, query: np.ndarray[Any, Any], asked: dict[str, Any]) -> list[tuple[int, float]]:
    """Addresses and distances; each row once."""
    nearest = {"column": "v", "q": query, **asked}
    rows = table.to_table(columns=["_distance"], nearest=nearest, with_row_address=True)
    rows.validate(full=True)
    addresses = rows["_rowaddr"].to_pylist()
    if len(set(addresses)) < len(addresses):
        raise WrongResult("a row came twice")
    return list(zip(addresses, rows["_distance"].to_pylist(), strict=True))


def _check_answer(
    verdict: Verdict,
    asked: dict[str, Any],
    answer: list[tuple[int, float]],
    truth: list[tuple[int, float]],
    is_other_length: bool,
) -> None:
    exact = dict(truth)
    if any(address not in exact for address, _ in answer) and "refine_factor" in asked:
        verdict.findings.append(f"{asked}: a row that is not in the table: {answer[:5]}")
        return
    if "refine_factor" in asked and any(exact[address] != distance for address, distance in answer):
        verdict.findings.append(f"{asked}: a distance that is not that of the row: {answer[:5]}")
    if asked is WHOLE:
        differs = [address for address, _ in answer] != [address for address, _ in truth[: asked["k"]]]
        verdict.other_rows += differs
        if differs and is_other_length:
            verdict.findings.append(f"{asked}: {answer[:5]} instead of {truth[:5]}")


def _check_names(verdict: Verdict, since: int, what: str) -> None:
    """Errors of an index name it and its file."""
    for error in verdict.errors[since:]:
        text = str(error)
        if INDEX_NAME not in text or ".idx" not in text:
            verdict.findings.append(f"{what}: neither index nor file: {type(error).__name__}: {text[:300]}")
