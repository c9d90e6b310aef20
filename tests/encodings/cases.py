"""One-column tables that between them use every layout and codec of file versions 2.1 and 2.2.

The list is section 12 of the structural encodings' specification. Data is made from a fixed seed, cases are named.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa

from tests.products import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N = 5000


@dataclass(frozen=True)
class Case:
    """A column to write. `versions`: the file versions in which pylance can write it."""

    name: str
    make: Callable[[], pa.Array]
    metadata: dict[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ("2.1", "2.2")
    nullable: bool = True

    def table(self) -> pa.Table:
        """The table of this one column, called `c`."""
        return self._table

    @cached_property
    def _table(self) -> pa.Table:
        """Made once: making the values in Python takes longer than most of what is tested with them."""
        array = self.make()
        column = pa.field("c", array.type, nullable=self.nullable, metadata=self.metadata or None)
        return pa.Table.from_arrays([array], schema=pa.schema([column]))


def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def nulled(values: np.ndarray, dtype: pa.DataType, share: float = 0.2) -> pa.Array:
    return pa.array(values, dtype, mask=rng().random(len(values)) < share)


def with_nulls(values: list, dtype: pa.DataType, share: float = 0.2) -> pa.Array:
    dice = random.Random(7)
    return pa.array([None if dice.random() < share else value for value in values], dtype)


def words(count: int, low: int, high: int, seed: int = 3) -> list[str]:
    dice = random.Random(seed)
    return ["".join(dice.choices(string.ascii_letters, k=dice.randint(low, high))) for _ in range(count)]


def sentences(count: int = N) -> list[str]:
    dice = random.Random(4)
    vocabulary = words(300, 3, 9)
    return [" ".join(dice.choices(vocabulary, k=dice.randint(3, 9))) for _ in range(count)]


def blobs(count: int, low: int, high: int) -> list[bytes]:
    dice = random.Random(5)
    return [dice.randbytes(dice.randint(low, high)) for _ in range(count)]


def lists(count: int, null: float, empty: float, item_null: float, seed: int = 9) -> list:
    dice = random.Random(seed)

    def one() -> list | None:
        draw = dice.random()
        if draw < null:
            return None
        if draw < null + empty:
            return []
        return [None if dice.random() < item_null else dice.randint(0, 999) for _ in range(dice.randint(1, 6))]

    return [one() for _ in range(count)]


def integers() -> Iterator[Case]:
    for dtype in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()):
        info = np.iinfo(dtype.to_pandas_dtype())

        def random_full(info=info, dtype=dtype) -> np.ndarray:
            return rng().integers(info.min, info.max, N, dtype=dtype.to_pandas_dtype(), endpoint=True)

        makers: dict[str, Callable[[], pa.Array]] = {
            "random": lambda f=random_full, t=dtype: pa.array(f(), t),
            "small": lambda t=dtype: pa.array(rng().integers(0, 12, N), t),
            "sorted": lambda f=random_full, t=dtype: pa.array(np.sort(f()), t),
            "constant": lambda t=dtype: pa.array(np.full(N, 42), t),
            "zeros": lambda t=dtype: pa.array(np.zeros(N, "i1"), t),
            "runs of 10": lambda f=random_full, t=dtype: pa.array(np.repeat(f()[: N // 10], 10), t),
            "5 runs of 1000": lambda f=random_full, t=dtype: pa.array(np.repeat(f()[:5], 1000), t),
            "nulls": lambda f=random_full, t=dtype: nulled(f(), t),
        }
        for name, make in makers.items():
            yield Case(f"{dtype} {name}", make)
    for count in (1, 3, 1024, 1025, 2048):
        yield Case(f"int32 x {count}", lambda n=count: pa.array(np.arange(n) * 7, pa.int32()))


def floats() -> Iterator[Case]:
    for dtype in (pa.float16(), pa.float32(), pa.float64()):
        kind = dtype.to_pandas_dtype()
        yield Case(f"{dtype} random", lambda t=dtype, k=kind: pa.array(rng().normal(size=N).astype(k), t))
        yield Case(f"{dtype} nulls", lambda t=dtype, k=kind: nulled(rng().normal(size=N).astype(k), t))
        yield Case(
            f"{dtype} runs", lambda t=dtype, k=kind: pa.array(np.repeat(rng().normal(size=N // 10), 10).astype(k), t)
        )
    yield Case("bool random", lambda: pa.array(rng().random(N) < 0.5))
    yield Case("bool nulls", lambda: nulled(rng().random(N) < 0.5, pa.bool_()))
    yield Case("bool many", lambda: pa.array(rng().random(100_003) < 0.5))
    yield Case("bool constant", lambda: pa.array([True] * N))


def texts() -> Iterator[Case]:
    for dtype in (pa.string(), pa.large_string()):
        yield Case(f"{dtype} digits", lambda t=dtype: pa.array([str(i % 977) for i in range(N)], t))
        yield Case(f"{dtype} sentences", lambda t=dtype: pa.array(sentences(), t))
        yield Case(f"{dtype} sentences nulls", lambda t=dtype: with_nulls(sentences(), t))
        yield Case(f"{dtype} ten words", lambda t=dtype: pa.array([f"word{i * i % 10}" for i in range(N)], t))
        yield Case(f"{dtype} ten words nulls", lambda t=dtype: with_nulls([f"word{i * i % 10}" for i in range(N)], t))
        yield Case(f"{dtype} long", lambda t=dtype: pa.array(words(400, 400, 900), t))
        yield Case(f"{dtype} long nulls", lambda t=dtype: with_nulls(words(400, 400, 900), t))
        yield Case(f"{dtype} constant", lambda t=dtype: pa.array(["same"] * N, t))
    yield Case("string fsst off", lambda: pa.array(sentences(400)), {"lance-encoding:compression": "fsst"})
    yield Case("string tiny", lambda: pa.array(["", "a", "bc", "", "d" * 9] * 10))
    yield Case("string all empty", lambda: pa.array([""] * N))
    yield Case("binary random", lambda: pa.array(blobs(N, 0, 20), pa.binary()))
    yield Case("large_binary nulls", lambda: with_nulls(blobs(N, 0, 20), pa.large_binary()))
    yield Case("strings 300 0 400", lambda: pa.array(["x" * 300, "", "y" * 400, None] * 5))
    yield Case("binary to 2000", lambda: pa.array(blobs(600, 0, 2000), pa.binary()))
    yield Case("binary 40 KB", lambda: pa.array(blobs(20, 40_000, 41_000), pa.binary()))
    yield Case("string 40 KB nulls", lambda: with_nulls(words(20, 40_000, 41_000), pa.string()))
    for size in (255, 256):
        yield Case(f"strings of {size}", lambda s=size: pa.array(words(300, s, s)))
    for count in (99, 100):
        yield Case(f"{count} strings", lambda n=count: pa.array([f"w{i % 5}" for i in range(n)]))
    for count in (3600, 4000):
        yield Case(f"{count} strings of 5", lambda n=count: pa.array(words(n, 5, 5)))
    for distinct in (500, 2400):
        yield Case(f"{distinct} distinct", lambda d=distinct: pa.array(words(d, 6, 6) * (N // d + 1)).slice(0, N))


def nested() -> Iterator[Case]:
    for dtype in (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.large_list(pa.int32())):
        for name, odds in {
            "full": (0, 0, 0),
            "null lists": (0.2, 0, 0),
            "empty lists": (0, 0.2, 0),
            "both": (0.2, 0.2, 0),
            "all three": (0.2, 0.2, 0.2),
            "null items": (0, 0, 0.3),
        }.items():
            yield Case(f"{dtype} {name}", lambda o=odds, t=dtype: pa.array(lists(N, *o), t))
    ints = pa.list_(pa.int32())
    yield Case("all lists empty", lambda: pa.array([[]] * N, ints))
    yield Case("all lists null", lambda: pa.array([None] * N, ints))
    yield Case("null empty [null]", lambda: pa.array([None, [], [None]] * 500, ints))
    yield Case("long rows", lambda: pa.array([list(range(9000)), None, list(range(20_000)), [1], []] * 2, ints))
    yield Case("many empties between", lambda: pa.array([[1], *[[]] * 200_000, [2, 3]], ints))
    yield Case("list of list", lambda: pa.array(_deep(2, 1500), pa.list_(ints)))
    yield Case("list of list of list", lambda: pa.array(_deep(3, 700), pa.list_(pa.list_(ints))))
    for name, values in {
        "sentences": sentences(N * 2),
        "ten words": [f"word{i % 10}" for i in range(N * 2)],
        "long": words(800, 300, 500),
    }.items():
        yield Case(f"list of string {name}", lambda v=values: _chop(v, pa.list_(pa.string())))
    yield Case("row of 100000 empties", lambda: pa.array([[[]] * 100_000, [[1], None]], pa.list_(ints)))
    yield from _structs()
    yield Case("list<null>", lambda: pa.array([[None], None, [], [None, None]] * 300, pa.list_(pa.null())))


def _deep(depth: int, count: int, seed: int = 11) -> list:
    dice = random.Random(seed)

    def one(level: int):
        if level == 0:
            return None if dice.random() < 0.1 else dice.randint(0, 99)
        draw = dice.random()
        return None if draw < 0.12 else [] if draw < 0.24 else [one(level - 1) for _ in range(dice.randint(1, 4))]

    return [one(depth) for _ in range(count)]


def _chop(values: list, dtype: pa.DataType) -> pa.Array:
    dice = random.Random(13)
    rows: list = []
    position = 0
    while position < len(values):
        draw = dice.random()
        if draw < 0.1:
            rows.append(None)
        elif draw < 0.2:
            rows.append([])
        else:
            size = dice.randint(1, 5)
            rows.append(values[position : position + size])
            position += size
    return pa.array(rows, dtype)


def random_rows(dtype: pa.DataType, count: int, null: float, empty: float, seed: int) -> pa.Array:
    """Rows of any nested type, nulls and empties at every level."""
    dice = random.Random(seed)

    def one(t: pa.DataType):
        if dice.random() < null:
            return None
        if pa.types.is_struct(t):
            return {t.field(i).name: one(t.field(i).type) for i in range(t.num_fields)}
        if pa.types.is_fixed_size_list(t):
            return [one(t.value_type) for _ in range(t.list_size)]
        if pa.types.is_map(t):
            if dice.random() < empty:
                return []
            return [(f"k{i}", one(t.item_type)) for i in range(dice.randint(1, 4))]
        if pa.types.is_list(t) or pa.types.is_large_list(t):
            return [] if dice.random() < empty else [one(t.value_type) for _ in range(dice.randint(1, 4))]
        if pa.types.is_null(t):
            return None
        if pa.types.is_fixed_size_binary(t):
            return dice.randbytes(t.byte_width)
        if pa.types.is_boolean(t):
            return dice.random() < 0.5
        if pa.types.is_floating(t):
            return float(dice.randint(-99, 99))
        if pa.types.is_integer(t):
            return dice.randint(0, 100)
        return "".join(dice.choices("abcdef ", k=dice.randint(0, 12)))

    return pa.array([one(dtype) for _ in range(count)], dtype)


def _structs() -> Iterator[Case]:
    flat = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.float64())])
    inner = pa.struct([("x", pa.int16()), ("y", pa.list_(pa.int32()))])
    deep = pa.struct([("s", inner), ("l", pa.list_(inner)), ("d", pa.float64())])
    types = {
        "struct": flat,
        "struct of struct and list of struct": deep,
        "list of struct": pa.list_(flat),
        "list of struct of list": pa.list_(pa.struct([("m", pa.list_(pa.int32()))])),
        "struct of list": pa.struct([("l", pa.list_(pa.string()))]),
    }
    for name, dtype in types.items():
        for null, empty in ((0, 0), (0.2, 0), (0, 0.2), (0.25, 0.25)):
            yield Case(f"{name} {null}/{empty}", lambda t=dtype, n=null, e=empty: random_rows(t, 900, n, e, 17))
    yield Case(
        "struct all-null member",
        lambda: pa.array([{"a": i, "b": None} for i in range(N)], pa.struct([("a", pa.int32()), ("b", pa.string())])),
    )
    yield Case("struct all null", lambda: pa.array([None] * N, flat))
    long = words(300, 300, 500)
    yield Case(
        "struct of long string",
        lambda: pa.array(
            [None if i % 7 == 0 else {"t": w} for i, w in enumerate(long)], pa.struct([("t", pa.string())])
        ),
    )
    texts_type = pa.struct([("t", pa.list_(pa.string()))])
    yield Case(
        "struct of list of long string",
        lambda: pa.array(
            [None if i % 7 == 0 else {"t": [w, None, w] if i % 3 else []} for i, w in enumerate(long)], texts_type
        ),
    )
    yield Case("empty struct", lambda: pa.array([{}] * 100, pa.struct([])))


def fixed() -> Iterator[Case]:
    for size, name in ((8, "small"), (64, "edge"), (128, "large")):
        dtype = pa.list_(pa.float32(), size)

        def vectors(s=size) -> pa.Array:
            return pa.FixedSizeListArray.from_arrays(pa.array(rng().random(600 * s, dtype="f4")), s)

        yield Case(f"vector {name}", vectors)
        yield Case(
            f"vector {name} nulls",
            lambda v=vectors, t=dtype: pa.array([None if i % 5 == 0 else x for i, x in enumerate(v().to_pylist())], t),
        )
    for size in (4, 100):
        dtype = pa.list_(pa.int32(), size)
        yield Case(f"vector of int {size} null items", lambda t=dtype: random_rows(t, 400, 0.15, 0, 19))
    for size in (5, 16):
        dtype = pa.list_(pa.bool_(), size)
        yield Case(f"vector of bool {size}", lambda t=dtype: random_rows(t, 500, 0, 0, 19))
        yield Case(f"vector of bool {size} nulls", lambda t=dtype: random_rows(t, 500, 0.2, 0, 19))
    for outer in (3, 40):
        dtype = pa.list_(pa.list_(pa.int16(), 4), outer)
        for null in (0, 0.15):
            yield Case(f"vector of vector {outer} {null}", lambda t=dtype, n=null: random_rows(t, 300, n, 0, 23))
    for size in (4, 100):
        dtype = pa.list_(pa.list_(pa.float32(), size))
        for null in (0, 0.2):
            yield Case(f"list of vector {size} {null}", lambda t=dtype, n=null: random_rows(t, 300, n, 0.2, 29))
    yield Case(
        "struct of list of vector",
        lambda: random_rows(pa.struct([("v", pa.list_(pa.list_(pa.int32(), 3)))]), 400, 0.2, 0.2, 31),
    )
    yield Case("fixed_size_binary 3", lambda: pa.array(blobs(N, 3, 3), pa.binary(3)))
    yield Case("fixed_size_binary 16", lambda: pa.array(blobs(N, 16, 16), pa.binary(16)))
    yield Case("fixed_size_binary 16 few", lambda: pa.array(blobs(5, 16, 16) * 1000, pa.binary(16)))
    yield Case("fixed_size_binary 500 nulls", lambda: with_nulls(blobs(200, 500, 500), pa.binary(500)))
    yield Case("fixed_size_binary 300 constant", lambda: pa.array([b"q" * 300] * 200, pa.binary(300)))


def scalars() -> Iterator[Case]:
    for dtype in (
        pa.timestamp("s"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ms", "+05:30"),
        pa.date64(),
        pa.time64("us"),
        pa.time64("ns"),
        pa.duration("ms"),
    ):
        span = 86_400 * 10**6 if pa.types.is_time(dtype) else 10**9
        step = 86_400_000 if dtype == pa.date64() else 1
        yield Case(
            f"{dtype} nulls",
            lambda t=dtype, s=span, k=step: nulled(rng().integers(0, s // k, N) * k, pa.int64()).cast(t),
        )
    for dtype in (pa.date32(), pa.time32("s"), pa.time32("ms")):
        yield Case(f"{dtype}", lambda t=dtype: nulled(rng().integers(0, 80_000, N).astype("i4"), pa.int32()).cast(t))
    import decimal

    def wide(digits: int) -> list[decimal.Decimal]:
        dice = random.Random(37)
        return [decimal.Decimal(dice.randrange(10**digits)).scaleb(-2) for _ in range(N)]

    yield Case("decimal128 wide", lambda: pa.array(wide(30), pa.decimal128(38, 2)))
    yield Case("decimal128 seven", lambda: pa.array(wide(30)[:7] * 700, pa.decimal128(38, 2)))
    yield Case("decimal256", lambda: with_nulls(wide(50), pa.decimal256(76, 2)))
    yield Case("null", lambda: pa.nulls(N))
    yield Case("all-null int", lambda: pa.nulls(N, pa.int32()))
    yield Case("all-null string", lambda: pa.nulls(N, pa.string()))
    for keys in (pa.int32(), pa.int8(), pa.uint16()):
        dtype = pa.dictionary(keys, pa.string())
        yield Case(f"dictionary {keys}", lambda t=dtype: pa.array([f"v{i % 9}" for i in range(N)]).cast(t))
        yield Case(
            f"dictionary {keys} nulls", lambda t=dtype: with_nulls([f"v{i % 9}" for i in range(N)], pa.string()).cast(t)
        )
    yield Case(
        "dictionary of int64",
        lambda: pa.DictionaryArray.from_arrays(pa.array([i % 5 for i in range(N)], pa.int32()), pa.array(range(5))),
    )
    keys = pa.array([None if i % 7 == 3 else i % 20 for i in range(N)], pa.int16())
    flags = pa.array([i % 3 == 0 for i in range(20)])
    yield Case("dictionary of flags nulls", lambda: pa.DictionaryArray.from_arrays(keys, flags))
    nothing = pa.list_(pa.null(), 3)
    yield Case("vector of null", lambda: pa.array([[None] * 3] * 700, nothing))
    yield Case("vector of null nulls", lambda: with_nulls([[None] * 3] * 700, nothing))
    yield Case("list of vector of null", lambda: random_rows(pa.list_(nothing), 700, 0.2, 0.2, 51))
    empty = pa.binary(0)
    yield Case("fixed_size_binary 0", lambda: pa.array([b""] * N, empty), versions=("2.2",))
    yield Case("fixed_size_binary 0 nulls", lambda: with_nulls([b""] * N, empty), versions=("2.2",))
    yield Case(
        "list of fixed_size_binary 0", lambda: random_rows(pa.list_(empty), 700, 0.2, 0.2, 53), versions=("2.2",)
    )


def options() -> Iterator[Case]:
    for key in ("packed", "lance-encoding:packed"):
        pair = pa.struct([("a", pa.int32()), ("b", pa.float64())])
        yield Case(f"struct {key}", lambda t=pair: pa.array([{"a": i, "b": i / 2} for i in range(N)], t), {key: "true"})
        yield Case(
            f"struct {key} nulls",
            lambda t=pair: with_nulls([{"a": i, "b": i / 2} for i in range(N)], t),
            {key: "true"},
        )
    rich = pa.struct([("a", pa.int32()), ("s", pa.string()), ("z", pa.int16())])
    yield Case(
        "packed struct with string",
        lambda: pa.array([{"a": i, "s": f"text {i}", "z": 7} for i in range(900)], rich),
        {"packed": "true"},
        ("2.2",),
    )
    vector = pa.struct([("a", pa.int32()), ("v", pa.list_(pa.float32(), 3))])
    yield Case(
        "packed struct with vector",
        lambda: pa.array([{"a": i, "v": [i, 1, 2]} for i in range(900)], vector),
        {"packed": "true"},
        ("2.2",),
    )
    for scheme in ("lz4", "zstd"):
        compressed = {"lance-encoding:compression": scheme}
        split = {**compressed, "lance-encoding:bss": "on"}
        yield Case(f"{scheme} int32", lambda: pa.array(rng().integers(0, 1 << 30, N), pa.int32()), compressed)
        yield Case(f"{scheme} double", lambda: pa.array(rng().normal(size=N)), compressed)
        yield Case(f"{scheme} bss float", lambda: pa.array(rng().normal(size=N).astype("f4")), split)
        yield Case(f"{scheme} bss double", lambda: pa.array(rng().normal(size=N).round(2)), split)
        yield Case(f"{scheme} runs", lambda: pa.array(np.repeat(rng().integers(0, 1 << 60, 50), 100)), compressed)
        yield Case(f"{scheme} sentences", lambda: pa.array(sentences()), compressed)
        yield Case(f"{scheme} short strings", lambda: pa.array(words(N, 1, 3)), compressed)
        yield Case(f"{scheme} long strings nulls", lambda: with_nulls(words(300, 300, 900), pa.string()), compressed)
        yield Case(f"{scheme} bool", lambda: pa.array(np.arange(100_000) % 3 == 0), compressed)
        yield Case(f"{scheme} few words", lambda: pa.array([f"word{i % 10}" for i in range(N)]), compressed)
    yield Case(
        "zstd level 9",
        lambda: pa.array(sentences()),
        {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "9"},
    )
    plain = {"lance-encoding:compression": "none"}
    yield Case("none int", lambda: pa.array(range(N)), plain)
    yield Case("none string", lambda: pa.array(sentences()), plain)
    yield Case("none long string", lambda: pa.array(words(300, 300, 900)), plain)
    zipped = {"lance-encoding:structural-encoding": "fullzip"}
    yield Case("full-zip int64 nulls", lambda: nulled(rng().integers(0, 99, N), pa.int64()), zipped)
    yield Case("full-zip list", lambda: pa.array(lists(900, 0.2, 0.2, 0.2), pa.list_(pa.int32())), zipped)
    yield Case("full-zip list of list", lambda: pa.array(_deep(2, 600), pa.list_(pa.list_(pa.int32()))), zipped)
    yield Case("full-zip string", lambda: with_nulls(sentences(900), pa.string()), zipped)
    yield Case("full-zip list of bool", lambda: random_rows(pa.list_(pa.bool_()), 600, 0.2, 0.2, 41), zipped)
    eight = pa.int32()
    for _ in range(8):
        eight = pa.list_(eight)
    yield Case("full-zip eight lists", lambda t=eight: random_rows(t, 60, 0.1, 0.1, 43), zipped)
    yield Case(
        "mini-block long strings",
        lambda: pa.array(words(300, 300, 900)),
        {"lance-encoding:structural-encoding": "miniblock"},
    )
    yield Case("no rows", lambda: pa.array([], pa.int32()))
    yield Case("no rows of list", lambda: pa.array([], pa.list_(pa.struct([("a", pa.string())]))))
    yield Case("map", lambda: random_rows(pa.map_(pa.string(), pa.int32()), 700, 0, 0.2, 47), versions=("2.2",))
    yield Case(
        "map of lists",
        lambda: pa.array(
            [None if i % 9 == 0 else [(f"k{j}", [j, None]) for j in range(i % 4)] for i in range(700)],
            pa.map_(pa.string(), pa.list_(pa.int32())),
        ),
        versions=("2.2",),
    )
    yield Case(
        "vector of struct",
        lambda: random_rows(pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]), 3), 300, 0, 0, 53),
        versions=("2.2",),
    )


@cache
def all_cases() -> list[Case]:
    """Every case, names unique."""
    cases = [*integers(), *floats(), *texts(), *nested(), *fixed(), *scalars(), *options()]
    assert len({case.name for case in cases}) == len(cases)
    return cases


def cases_by_version(turn: int | None = None) -> list[tuple[Case, str]]:
    """Every case with each version; of a turn, 0 or 1, a case of two versions has one, in a campaign both."""
    return [
        (case, version)
        for case in all_cases()
        for number, version in enumerate(case.versions)
        if turn is None or ALL or len(case.versions) == 1 or (crc32(case.name.encode()) + number) % 2 == turn
    ]
