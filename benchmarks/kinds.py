"""Real kinds of data: what they take on disk, and what writing them costs.

    kinds/size/KIND    bytes of the data files of a table of one column, the median of five tables
    kinds/write/KIND   processor time of writing it, nothing flushed

Kinds are JSON documents of three sizes, English prose, URLs, log lines, UUIDs, base64, source code, decimals,
timestamps and embeddings; and two kinds of text in one column, mixed or one behind the other. Each table has eight
million bytes of its kind, made anew from the number of the round: what compresses one well by chance does not decide.
"""

from __future__ import annotations

import base64
import inspect
import json
import random
import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from benchmarks import writes
from benchmarks.cases import OURS, PYLANCE, Case
from benchmarks.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import Turn
    from benchmarks.tables import Tables

    MakeText = Callable[[random.Random], str]

TABLE_BYTES: Final = 8_000_000
NUM_TABLES: Final = 5
LIBRARIES: Final = (OURS, PYLANCE)
_WORDS: Final = tuple(dict.fromkeys(re.findall(r"[a-z]{2,}", inspect.getsource(inspect))))
_FREQUENT: Final = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with")
_LINES: Final = tuple(line for module in (inspect, json, random) for line in inspect.getsource(module).splitlines())


# -- text -------------------------------------------------------------------------------------------------------------


def prose(dice: random.Random, num_chars: int) -> str:
    """Words of English, every second one a frequent one."""
    words: list[str] = []
    num_found = 0
    while num_found < num_chars:
        words.append(dice.choice(_WORDS if dice.random() < 0.5 else _FREQUENT))
        num_found += len(words[-1]) + 1
    return " ".join(words).capitalize() + "."


def document(dice: random.Random, num_chars: int) -> str:
    """JSON: names that come again, numbers, identifiers and prose; about so long."""
    order: dict[str, Any] = {"id": dice.randrange(10**9), "user": prose(dice, 12), "items": []}
    while 110 * len(order["items"]) < num_chars:
        price = round(dice.random() * 100, 2)
        order["items"].append({"sku": f"{dice.getrandbits(64):016x}", "price": price, "note": prose(dice, 40)})
    return json.dumps(order)


def url(dice: random.Random) -> str:
    """Of a page of a shop, with a query."""
    host, folder, page, source = dice.choices(_WORDS, k=4)
    return f"https://www.{host}.com/{folder}/{page}?id={dice.randrange(10**6)}&ref={source}"


def log_line(dice: random.Random) -> str:
    """A line of a service's log."""
    when = datetime.fromtimestamp(1_762_000_000 + dice.randrange(10**7), UTC).isoformat(timespec="milliseconds")
    level = dice.choice(["INFO", "WARN", "ERROR"])
    return f"{when} {level} [{dice.choice(_WORDS)}] request {dice.getrandbits(32):x} took {dice.randrange(5000)} ms"


def source_code(dice: random.Random) -> str:
    """Ten to sixty lines of Python."""
    start = dice.randrange(len(_LINES) - 60)
    return "\n".join(_LINES[start : start + dice.randrange(10, 60)])


def _either(dice: random.Random) -> str:
    return log_line(dice) if dice.random() < 0.5 else prose(dice, 90)


_ONE_FIRST: Final = "one-text-behind-another"
TEXTS: Final[dict[str, MakeText]] = {
    "json-2k": partial(document, num_chars=2_000),
    "json-5k": partial(document, num_chars=5_000),
    "json-20k": partial(document, num_chars=20_000),
    "prose": lambda dice: prose(dice, dice.randrange(60, 200)),
    "url": url,
    "log": log_line,
    "uuid": lambda dice: str(uuid.UUID(int=dice.getrandbits(128))),
    "base64": lambda dice: base64.b64encode(dice.randbytes(dice.randrange(30, 90))).decode(),
    "source-lines": lambda dice: dice.choice(_LINES),
    "source": source_code,
    "two-texts": _either,
    _ONE_FIRST: _either,
}


def texts(kind: str, seed: int, num_bytes: int) -> pa.Table:
    """So many bytes of a kind, a few more."""
    dice, found, num_found = random.Random(f"{kind} {seed}"), [], 0
    while num_found < num_bytes:
        found.append(TEXTS[kind](dice))
        num_found += len(found[-1])
    if kind == _ONE_FIRST:
        found.sort(key=lambda text: text[:2] != "20")  # all lines of the log, then all prose
    return pa.table({"value": found})


# -- numbers ----------------------------------------------------------------------------------------------------------


def _decimals(dice: np.random.Generator, num_bytes: int) -> pa.Array:
    cents = dice.integers(0, 100_000_00, num_bytes // 16)
    return pa.array([Decimal(one) / 100 for one in cents.tolist()], pa.decimal128(18, 2))


def _timestamps(dice: np.random.Generator, num_bytes: int) -> pa.Array:
    steps = dice.exponential(50_000, num_bytes // 8).astype(np.int64)
    return pa.array(1_762_000_000_000_000 + np.cumsum(steps), pa.timestamp("us"))


def _embeddings(dice: np.random.Generator, num_bytes: int) -> pa.Array:
    values = dice.standard_normal(num_bytes // 4 // 256 * 256).astype(np.float32)
    return pa.FixedSizeListArray.from_arrays(values / 16, 256)


NUMBERS: Final[dict[str, Callable[[np.random.Generator, int], pa.Array]]] = {
    "decimal": _decimals,
    "timestamp": _timestamps,
    "embedding": _embeddings,
}


def numbers(kind: str, seed: int, num_bytes: int) -> pa.Table:
    """So many bytes of a kind, as Arrow holds them."""
    return pa.table({"value": NUMBERS[kind](np.random.default_rng(seed), num_bytes)})


# -- cases ------------------------------------------------------------------------------------------------------------


def kind_cases(tables: Tables) -> Iterator[Case]:
    """See the module."""
    for make, kinds in ((texts, TEXTS), (numbers, NUMBERS)):
        for kind in kinds:
            yield _case(tables, "size", kind, partial(make, kind))
            yield _case(tables, "write", kind, partial(make, kind))


def _case(tables: Tables, question: str, kind: str, make_rows: Callable[[int, int], pa.Table]) -> Case:
    is_size = question == "size"

    def make() -> dict[str, Turn]:
        known = [make_rows(seed, int(TABLE_BYTES * tables.scale)) for seed in range(NUM_TABLES)]
        contenders, folder = writes.writers("2.2"), tables.new_folder()
        writes.require_same_rows(known[0], contenders, folder)

        def turn(who: str, number: int) -> Sample:
            rows = known[number % NUM_TABLES]
            sample, num_bytes = writes.written(contenders[who], rows, folder / f"{who}-{number}")
            return Sample(float(num_bytes) if is_size else sample.cpu_s, sample.cpu_s)

        return {who: partial(turn, who) for who in LIBRARIES}

    goal = writes.SIZE_GOAL if is_size else writes.TIME_GOAL
    return Case(
        f"kinds/{question}/{kind}", make, "bytes" if is_size else "s", goal, rounds_max=NUM_TABLES if is_size else None
    )
