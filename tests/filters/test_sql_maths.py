"""Functions of floats give what pylance gives, bit for bit: filters by them select the same rows on every processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io._kernels import float_function

if TYPE_CHECKING:
    from lance_io import LanceDataset

    Both = tuple[lance.LanceDataset, LanceDataset]

EDGES = [
    -np.inf, -1e300, -30, -2, -1.5, -1, -0.5, -1e-300, -0.0, 0.0, 1e-300, 0.5, 1, 1.5, 2, 10, 27, 100, 1e300, np.inf,
    np.nan, np.copysign(np.nan, -1),
]  # fmt: skip
EXACT = """
    sin(x) cos(x) tan(x) cot(x) asin(x) acos(x) atan(x) sinh(x) cosh(x) tanh(x) atanh(x) sqrt(x) cbrt(x) exp(x) ln(x)
    log(x) log2(x) log10(x) degrees(x) radians(x) signum(x) abs(x) round(x) trunc(x) round(x,2) trunc(x,2)
    log(2,x) log(y,x) atan2(x,y) nanvl(x,y)
""".split()
NEARLY = ["asinh(x)", "acosh(x)"]  # Rust's own, whose formulas change from release to release


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    dice = np.random.default_rng(11)
    wide = np.concatenate([EDGES, dice.normal(size=500), dice.normal(size=300) * 1000, dice.random(200)])
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    columns = {
        "f64": wide,
        "g64": np.roll(wide, 3),
        "f32": narrow,
        "g32": np.roll(narrow, 3),
        "i": np.arange(len(wide)),
    }
    nulls = pa.array(wide, mask=dice.random(len(wide)) < 0.2)
    uri = str(tmp_path_factory.mktemp("maths") / "t.lance")
    return lance.write_dataset(pa.table({**columns, "n64": nulls}), uri), lance_io.dataset(uri)


def values(both: Both, text: str) -> tuple[np.ndarray, np.ndarray]:
    """What each of them computes; types and nulls are the same."""
    theirs, ours = (one.to_table(columns={"found": text})["found"].combine_chunks() for one in both)
    assert ours.type == theirs.type, text
    assert ours.is_null().equals(theirs.is_null()), text
    return theirs.drop_null().to_numpy(), ours.drop_null().to_numpy()


def in_names(text: str, x: str, y: str) -> str:
    """A text about x and y for columns."""
    return text.replace("(x", f"({x}").replace("(y", f"({y}").replace(",x)", f",{x})").replace(",y)", f",{y})")


@pytest.mark.parametrize("names", [("f64", "g64"), ("f32", "g32"), ("n64", "f64"), ("f32", "i")], ids=",".join)
def test_every_bit_is_the_peers(names: tuple[str, str], both: Both) -> None:
    for text in EXACT:
        theirs, ours = values(both, in_names(text, *names))
        differ = theirs.view(f"u{theirs.itemsize}") != ours.view(f"u{ours.itemsize}")
        assert not differ.any(), (text, theirs[differ][:5], ours[differ][:5])


@pytest.mark.parametrize("name", ["f64", "f32"])
def test_others_differ_in_the_last_bits(name: str, both: Both) -> None:
    for text in NEARLY:
        theirs, ours = values(both, in_names(text, name, name))
        usual = np.isfinite(theirs) & (np.abs(theirs) > 0.1)
        np.testing.assert_array_max_ulp(ours[usual], theirs[usual], 8)
        assert np.array_equal(np.isnan(ours), np.isnan(theirs))
        assert np.array_equal(np.signbit(ours), np.signbit(theirs))


@pytest.mark.parametrize("limit", [-10.0, 0.1, 10.0])
def test_expressions_order_what_is_outside_of_a_domain(limit: float, both: Both) -> None:
    for name in "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt".split():
        wanted = getattr(pc, name)(pc.field("f64")) > limit
        theirs, ours = (one.to_table(columns=["i"], filter=wanted)["i"].to_pylist() for one in both)
        assert ours == theirs, name


def test_the_kernel_takes_floats_only() -> None:
    with pytest.raises(ValueError, match="7 bytes are no floats of 8 bytes"):
        float_function("sin", b"1234567", 8)
    with pytest.raises(ValueError, match="no floats of 2 bytes"):
        float_function("sin", b"1234", 2)
    with pytest.raises(ValueError, match="no function exec"):
        float_function("exec", b"12345678", 8)
