"""Tables with an index each, whose index files the campaign damages, and what it asks them.

tables/KIND-LIBRARY-ROWS.lance    KIND of index, built by "theirs" or "ours", on a table with "ids" or "addresses"

Every answer is an error that names the index and the file, or rows of the table. A changed value or row number of an
index is data, which no reader can tell from the right one; so other rows than those of a scan are counted, and a fault
only where the file was cut or has another length. A key look-up brings its keys, and never gives a row of another key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import lance.indices
import numpy as np
import pyarrow as pa

import lance_io
import lance_io.indices
from lance_io.query import FullTextOperator, MatchQuery, PhraseQuery
from tests.fuzz.damage import Damaged, damage_data_file
from tests.fuzz.reading import Verdict, WrongResult

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

INDEX_NAME = "the_index"
NUM_ROWS = 900
KINDS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "btree": ("i", {"zone_size": 64}, ["i = 5", "i IN (1, 77, 500)", "i < 30", "i IS NULL", "NOT (i = 7)"]),
    "texts": ("s", {"zone_size": 64}, ["s = 'word 12'", "s LIKE 'word 1%'", "s > 'word 8'", "s IS NOT NULL"]),
    "bitmap": ("c", {}, ["c = 5", "c IN (1, 2, 30)", "c != 3", "c IS NULL", "c > 8"]),
    "labels": ("l", {}, ["array_has(l, 't1')", "array_has_all(l, ['t1', 't2'])", "NOT array_has(l, 't3')"]),
    "zonemap": ("f", {"rows_per_zone": 100}, ["f = 5.0", "f < 30.0", "f IS NULL", "f BETWEEN 3.0 AND 9.5"]),
    "bloomfilter": ("i", {"number_of_items": 100, "probability": 0.01}, ["i = 5", "i IN (1, 77, 500)", "i IS NULL"]),
    "ngram": ("s", {}, ["contains(s, 'word 1')", "contains(s, '77')", "s LIKE '%rd 12%'"]),
}
WORDS: dict[str, Any] = {
    "s = 'word 12'": MatchQuery("12", "s"),
    "s IN ('word 7', 'word 77')": MatchQuery("77 nothing 7", "s"),
    "s = 'word 5'": MatchQuery("5 word", "s", operator=FullTextOperator.AND),
    "s = 'word 13'": PhraseQuery("word 13", "s"),
    "s = 'word 150'": MatchQuery("150", "s", fuzziness=1, prefix_length=3),
    "s IS NOT NULL": MatchQuery("words", "s"),
}
"""Words that find the rows of a filter."""
KINDS |= {
    "inverted": ("s", {"with_position": True}, [*WORDS]),
    "blocks": ("s", {"with_position": True, "block_size": 256}, [*WORDS]),
}
TYPES = {"texts": "BTREE", "labels": "LABEL_LIST", "inverted": "INVERTED", "blocks": "INVERTED"}
KEYS = {"btree": [5, 77, 5000, 12], "texts": ["word 12", "none", "word 7"], "bitmap": [5, 30, 1]}


def rows(num_rows: int = NUM_ROWS) -> pa.Table:
    """Rows of every column, with nulls."""
    rng = np.random.default_rng(8)

    def some(values: list[Any]) -> list[Any]:
        return [None if hit else value for value, hit in zip(values, rng.random(num_rows) < 0.04, strict=True)]

    return pa.table(
        {
            "i": some(rng.permutation(num_rows).tolist()),
            "s": some([f"word {number}" for number in rng.integers(0, 200, num_rows)]),
            "c": some(rng.integers(0, 12, num_rows).tolist()),
            "l": some([[f"t{label}" for label in rng.integers(0, 5, number % 4)] for number in range(num_rows)]),
            "f": some((np.arange(num_rows) / 4).tolist()),
        }
    )


def make_indexed_specimens(folder: Path) -> None:
    """Write them below `folder`."""
    (folder / "tables").mkdir(parents=True)
    (folder / "files").mkdir()
    for name, (column, parameters, _) in KINDS.items():
        for library, who in ((lance, "theirs"), (lance_io, "ours")):
            for stable in (False, True):
                uri = str(folder / "tables" / f"{name}-{who}-{'ids' if stable else 'addresses'}.lance")
                lance.write_dataset(rows(), uri, max_rows_per_file=400, enable_stable_row_ids=stable).delete("c = 7")
                kind, table = TYPES.get(name, name.upper()), library.dataset(uri)
                if kind == "INVERTED":
                    table.create_scalar_index(column, kind, name=INDEX_NAME, **parameters)
                else:
                    built = library.indices.IndexConfig(kind.lower(), parameters) if parameters else kind
                    table.create_scalar_index(column, built, name=INDEX_NAME)
                lance.write_dataset(rows(50), uri, mode="append")


def index_files(table: Path) -> list[Path]:
    """The files of its index."""
    return sorted(table.glob("_indices/*/*.lance"))


def damage_index_file(data: bytes, dice: random.Random) -> Damaged:
    """One damage of a data file; or a file of another length."""
    if dice.random() < 0.85:
        damage = damage_data_file(data, dice)
        return Damaged(damage.data, damage.what)
    size = dice.choice((1, 3, 8, 40, 4096))
    kind = dice.randrange(4)
    if kind == 0:
        return Damaged(data + bytes(size), f"another length: {size} zeros behind the end")
    if kind == 1:
        return Damaged(data + data[-size:], f"another length: its last {size} bytes twice")
    if kind == 2:
        return Damaged(bytes(size) + data, f"another length: {size} zeros before the beginning")
    return Damaged(data[: -min(size, len(data))], f"another length: cut off {size} bytes before the end")


def is_seen(what: str) -> bool:
    """Whether damage must be noticed wherever it matters: a file of another length."""
    return what.startswith(("cut off", "another length"))


def read_indexed(uri: str, name: str, what: str, dice: random.Random) -> Verdict:
    """Ask the index of a table, of which one file is damaged.

    name  of the specimen
    what  was done to it
    """
    verdict = Verdict()
    kind = name.partition("-")[0]
    column, _, filters = KINDS[kind]
    table = lance_io.dataset(uri)
    for text, ask in _questions(filters, dice):
        truth = verdict.attempt(f"without index: {text}", lambda text=text: _addresses(table, without_index(text)))
        num_errors = len(verdict.errors)
        asked = by_index(kind, text)
        answer = verdict.attempt(f"{ask.__name__}: {text}", lambda asked=asked, ask=ask: ask(table, asked))
        _check_names(verdict, num_errors, text)
        if answer is None or truth is None:
            continue
        different = answer != (len(truth) if isinstance(answer, int) else truth)
        verdict.other_rows += different
        if different and is_seen(what):
            verdict.findings.append(f"{ask.__name__} of {text}: {str(answer)[:100]} instead of {str(truth)[:100]}")
    if kind in KEYS:
        num_errors = len(verdict.errors)
        verdict.attempt("keys", lambda: _look_up(table, column, KEYS[kind]))
        _check_names(verdict, num_errors, "keys")
    num_errors = len(verdict.errors)
    verdict.attempt("statistics", lambda: table.stats.index_stats(INDEX_NAME))
    _check_names(verdict, num_errors, "statistics")
    if dice.random() < 0.2:
        num_errors = len(verdict.errors)
        verdict.attempt("optimize", lambda: lance_io.dataset(uri).optimize.optimize_indices(num_indices_to_merge=10))
        _check_names(verdict, num_errors, "optimize")
    return verdict


def by_index(kind: str, text: str) -> dict[str, Any]:
    """The options of a scan that asks an index for the rows of a filter."""
    if TYPES.get(kind) == "INVERTED":
        return {"full_text_query": WORDS[text], "disable_scoring_autoprojection": True}
    return {"filter": text}


def without_index(text: str) -> dict[str, Any]:
    """The options of a scan that reads all rows for those of a filter."""
    return {"filter": text, "use_scalar_index": False}


def rows_in_order(table: Any, asked: dict[str, Any]) -> pa.Table:
    """The rows of a scan; those of a search come best first."""
    rows = table.to_table(with_row_address=True, **asked)
    return rows.sort_by("_rowaddr").drop_columns("_rowaddr")


def _questions(filters: list[str], dice: random.Random) -> Iterator[tuple[str, Any]]:
    for text in dice.sample(filters, 2):
        yield text, dice.choice((_addresses, _addresses, _count))


def _addresses(table: Any, asked: dict[str, Any]) -> list[int]:
    """The rows of a scan; each once, and with the values of the table."""
    answer = table.to_table(columns=["i"], with_row_address=True, **asked)
    answer.validate(full=True)
    addresses: list[int] = answer["_rowaddr"].to_pylist()
    if len(set(addresses)) < len(addresses):
        raise WrongResult("a row came twice")
    return sorted(addresses) if "full_text_query" in asked else addresses


def _count(table: Any, asked: dict[str, Any]) -> int:
    if "full_text_query" in asked:
        return int(table.scanner(**asked).count_rows())
    return int(table.count_rows(asked["filter"]))


def _look_up(table: Any, column: str, keys: list[Any]) -> None:
    found = table.get(column, keys, [column])[column].to_pylist()
    if not set(found) <= set(keys):
        raise WrongResult(f"rows of other keys: {found}")


def _check_names(verdict: Verdict, since: int, what: str) -> None:
    """Errors of an index name it and its file."""
    for error in verdict.errors[since:]:
        text = str(error)
        if INDEX_NAME not in text or ".lance" not in text:
            verdict.findings.append(f"{what}: neither index nor file: {type(error).__name__}: {text[:300]}")
