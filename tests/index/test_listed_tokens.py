"""Token sets in rows: similar tokens are those of a plain loop, of the same tokens in a token map, and of pylance."""

from __future__ import annotations

import random
import re
import tracemalloc
from functools import cache
from typing import TYPE_CHECKING, Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.query
from lance_io._kernels import near_tokens
from lance_io.errors import FormatError
from lance_io.index.text import listed_tokens
from lance_io.index.text.listed_tokens import ListedTokens
from tests.index.test_damaged_indices import without_sizes
from tests.index.test_damaged_texts import Parts
from tests.index.text_peer import agree, scores

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DISTANCES = (0, 1, 2, 3, 5, 12, 400, (1 << 32) - 1)
PREFIXES = (0, 1, 2, 3, 9)
COLUMNS = pa.schema([pa.field("_token", pa.string(), False), pa.field("_token_id", pa.uint32(), False)])


@cache
def distance_of(word: str, other: str) -> int:
    """Letters to insert, to remove or to replace, by the whole table of distances."""
    row = [*range(len(word) + 1)]
    for number, letter in enumerate(other, 1):
        last, row = row, [number]
        for at, own in enumerate(word):
            row.append(min(last[at] + (own != letter), last[at + 1] + 1, row[at] + 1))
    return row[-1]


def listed(tokens: list[str], numbers: Any = None) -> ListedTokens:
    numbers = range(len(tokens)) if numbers is None else numbers
    return ListedTokens.of_columns(pa.array(tokens, pa.string()), pa.array(numbers, pa.uint32()))


@pytest.mark.parametrize(("tokens_at_once", "distances_at_once"), [(1 << 16, 1 << 20), (7, 1 << 20), (64, 1), (64, 50)])
def test_similar_tokens_are_those_of_a_plain_loop(
    monkeypatch: pytest.MonkeyPatch, tokens_at_once: int, distances_at_once: int
) -> None:
    monkeypatch.setattr(listed_tokens, "_TOKENS_AT_ONCE", tokens_at_once)
    monkeypatch.setattr(listed_tokens, "_DISTANCES_AT_ONCE", distances_at_once)
    dice = random.Random(3)
    words = [*{"".join(dice.choices("abé日😀\0", [9, 6, 3, 2, 1, 1], k=dice.randint(0, 8))) for _ in range(150)}]
    words += ["a" * 60, "ab" * 30]
    numbers = dice.sample(range(1 << 32), len(words))
    tokens = listed(words, numbers)
    pairs = sorted(zip(words, numbers, strict=True))
    for word in (*dice.sample(words, 5), "", "abbé", "b日b日", "x", "a" * 59, "ba" * 30):
        for distance in DISTANCES:
            for prefix in PREFIXES:
                near = [
                    (other.encode(), number)
                    for other, number in pairs
                    if other.startswith(word[:prefix]) and distance_of(word, other) <= distance
                ]
                assert tokens.near(word, distance, prefix, 1000) == near
                assert tokens.near(word, distance, prefix, 3) == near[:3]
    assert tokens.near("a", 1, 0, 0) == []
    assert tokens.near("a" * 1_000_000, 3, 0, 50) == []


def test_tokens_are_found() -> None:
    words = ["b", "a", "日本", "", "ab"]
    tokens = listed(words, [4, 7, 1, 9, 2])
    assert [tokens.find(word.encode()) for word in words] == [4, 7, 1, 9, 2]
    assert [tokens.find(word) for word in (b"aa", b"zz", b"\xff", "日".encode())] == [None] * 4
    assert listed([]).find(b"a") is None
    assert listed([]).near("a", 2, 0, 10) == []


def test_memory_is_bounded() -> None:
    """A search takes the same memory for many tokens as for some."""
    peaks = []
    for num_tokens in (100_000, 400_000):
        tokens = ListedTokens.of_columns(
            pa.array([f"{number * 7919 % 1_000_000:08}" for number in range(num_tokens)]),
            pa.array(np.arange(num_tokens), pa.uint32()),
        )
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        assert len(tokens.near("00123456", 2, 0, 50)) == 50
        tokens.near("zzzzzzzz", 7, 0, 50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert pa.total_allocated_bytes() == before
    assert peaks[1] < 1.2 * peaks[0] < 64 << 20


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ((pa.array([b"a"]), pa.array([1], pa.uint32())), "_token: expected string, found binary"),
        ((pa.array(["a"]), pa.array([1], pa.int64())), "_token_id: expected uint32, found int64"),
        ((pa.array(["a", None]), pa.array([1, 2], pa.uint32())), "a token or its number is null"),
        ((pa.array(["a", "b"]), pa.array([1, None], pa.uint32())), "a token or its number is null"),
        ((pa.array(["a", "b", "a"]), pa.array([1, 2, 3], pa.uint32())), "a token stands twice"),
        ((pa.array([b"a\xff"]).view(pa.string()), pa.array([1], pa.uint32())), "a token is no UTF-8"),
    ],
)
def test_damaged_columns_are_named(columns: tuple[pa.Array, pa.Array], words: str) -> None:
    with pytest.raises(FormatError, match=re.escape(words)):
        ListedTokens.of_columns(*columns)


# -- tables ----------------------------------------------------------------------------------------------------------


def in_rows(folder: Path, edit: Callable[[list[tuple[bytes, int]]], Any]) -> None:
    """Store the tokens of an index in rows, as pylance does with a token set of form "arrow"."""
    parts = Parts(folder, "part_0_tokens")
    tokens = near_tokens(parts.rows["_token_fst_bytes"][0].as_py(), "", 1000, 0, 1 << 20)
    edit(tokens)
    texts, numbers = [token.decode() for token, _ in tokens], pa.array([number for _, number in tokens], pa.uint32())
    parts.rows = pa.table([pa.array(texts), numbers], schema=COLUMNS)
    parts.write()
    parts = Parts(folder, "metadata")
    parts.metadata["token_set_format"] = "arrow"
    parts.write()
    without_sizes(folder)


WORDS = [*(f"w{number}" for number in range(60)), "apple", "apply", "ample", "maple", "cart", "card", "日本", "日常"]
ASKED = ["apple cat", "w5", "w55 cord", "日", "zzz", "a"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    dice = random.Random(4)
    texts = [" ".join(dice.choices(WORDS, k=dice.randint(1, 9))) for _ in range(300)]
    written = lance.write_dataset(pa.table({"id": range(300), "t": texts}), tmp_path / "t")
    plain = {"stem": False, "remove_stop_words": False, "ascii_folding": False}
    written.create_scalar_index("t", "INVERTED", name="the_index", **plain)
    return tmp_path / "t"


def answers(table: Any, query: Any) -> dict[tuple[str, int, int, int], Any]:
    return {
        (words, distance, prefix, most): scores(
            table, query(words, "t", fuzziness=distance, prefix_length=prefix, max_expansions=most)
        )
        for words in ASKED
        for distance in (0, 1, 2, 3)
        for prefix in (0, 1, 2)
        for most in (2, 50)
    }


def test_searches_answer_as_with_a_token_map_and_as_pylance(table: Path) -> None:
    by_map = answers(lance_io.dataset(table), lance_io.query.MatchQuery)
    in_rows(table, lambda tokens: None)  # pylance needs them in order
    by_rows = answers(lance_io.dataset(table), lance_io.query.MatchQuery)
    assert by_rows == by_map
    peers = answers(lance.dataset(str(table)), lance.query.MatchQuery)
    assert sum([len(rows) for rows in peers.values()]) > 5000
    for asked, rows in peers.items():
        assert agree(rows, by_rows[asked], is_cut=False), asked
    in_rows_again = Parts(table, "part_0_tokens")
    order = np.random.default_rng(5).permutation(len(in_rows_again.rows))
    in_rows_again.rows = in_rows_again.rows.take(order)
    in_rows_again.write()
    without_sizes(table)
    assert answers(lance_io.dataset(table), lance_io.query.MatchQuery) == by_map


@pytest.mark.parametrize("fuzziness", [0, 1])
def test_a_number_beyond_the_posting_lists_is_named(table: Path, fuzziness: int) -> None:
    in_rows(table, lambda tokens: tokens.__setitem__(0, (tokens[0][0], 1 << 20)))
    with pytest.raises(FormatError, match=r"a token has number 1048576, part_0_invert\.lance has 68 rows") as caught:
        scores(lance_io.dataset(table), lance_io.query.MatchQuery("ample", "t", fuzziness=fuzziness))
    assert "'the_index'" in str(caught.value)
