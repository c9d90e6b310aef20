"""bfloat16 in pandas: `PandasBFloat16Array` beside pylance's, which does less."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lance
import lance.arrow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lance_io
import lance_io.arrow

if TYPE_CHECKING:
    from pathlib import Path

VALUES = [1.5, None, 3.0, -2.25]


def floats(values: Any) -> list[float | None]:
    """Values as Python has them; those of pylance are no floats."""
    return [None if one is None else one.as_float() for one in values]


def both(ask: Any) -> list[Any]:
    """What a question gets from each library's array."""
    return [
        ask(library.arrow.PandasBFloat16Array(library.arrow.bfloat16_array(VALUES))) for library in (lance_io, lance)
    ]


def test_values_are_those_of_pylance() -> None:
    for ask in (
        floats,
        lambda array: floats(array[1:3]),
        lambda array: floats(array[np.array([True, False, True, False])]),
        lambda array: floats([array[0], array[-1]]),
        lambda array: array.isna().tolist(),
        lambda array: (len(array), str(array.dtype), array.dtype.kind, array.dtype.na_value),
        lambda array: pa.array(array).storage,
        lambda array: floats(type(array)._from_sequence([1.0, None], dtype=array.dtype)),
    ):
        ours, theirs = both(ask)
        assert ours == theirs


def test_arrays_and_tables_come_as_it(tmp_path: Path) -> None:
    array = lance_io.arrow.bfloat16_array(VALUES)
    frames = [array.to_pandas(), pa.table({"a": array})["a"].to_pandas(), pa.table({"a": array}).to_pandas()["a"]]
    uri = str(tmp_path / "t")
    for library in (lance_io, lance):
        library.write_dataset(
            pa.table({"a": library.arrow.bfloat16_array(VALUES), "b": range(4)}), uri, mode="overwrite"
        )
        frames += [lance_io.dataset(uri).to_pandas()["a"], lance.dataset(uri).to_pandas()["a"]]
    for series in frames:
        assert str(series.dtype) == "lance.bfloat16"
        assert floats(series) == VALUES
        assert series.isna().tolist() == [False, True, False, False]
    assert isinstance(frames[0].array, lance_io.arrow.PandasBFloat16Array)
    assert isinstance(array.type.to_pandas_dtype(), pd.api.extensions.ExtensionDtype)


@pytest.fixture
def frame() -> pd.DataFrame:
    """A column of it, and one of whole numbers."""
    return pa.table({"a": lance_io.arrow.bfloat16_array(VALUES), "b": [4, 3, 2, 1]}).to_pandas()


def test_frames_work_with_it(frame: pd.DataFrame) -> None:
    assert floats(frame[frame.b > 2].a) == [1.5, None]
    assert floats(frame.sort_values("b").a) == VALUES[::-1]
    assert floats(frame.sort_values("a").a) == [-2.25, 1.5, 3.0, None]
    assert floats(pd.concat([frame, frame]).a) == VALUES * 2
    assert floats(frame.copy().a) == VALUES
    assert floats(frame.iloc[[2, 0]].a) == [3.0, 1.5]
    assert floats(frame.dropna().a) == [1.5, 3.0, -2.25]
    assert floats(frame.reindex([3, 9]).a) == [-2.25, None]
    assert frame.a.astype("float32").sum() == 2.25
    assert frame.a.astype("float32").tolist()[0] == 1.5
    assert (frame.a == 1.5).tolist() == [True, False, False, False]
    assert (frame.a == frame.a).tolist() == [True, False, True, True]
    assert frame.groupby("a").b.sum().to_dict() == {1.5: 4, 3.0: 2, -2.25: 1}
    assert "1.5" in repr(frame) and "lance.bfloat16" in repr(frame.a)
    assert pickle.loads(pickle.dumps(frame)).equals(frame)
    back = pa.Table.from_pandas(frame)
    assert back.schema.field("a").type.extension_name == "lance.bfloat16"
    assert back["a"].chunk(0).storage.equals(lance_io.arrow.bfloat16_array(VALUES).storage)
    assert frame.a.array.nbytes >= 8


def test_takes_and_conversions(frame: pd.DataFrame) -> None:
    array = frame.a.array
    assert floats(array.take([-1, 0])) == [-2.25, 1.5]
    assert floats(array.take([-1, 0], allow_fill=True)) == [None, 1.5]
    assert floats(array.take([-1, 0], allow_fill=True, fill_value=8)) == [8.0, 1.5]
    assert floats(array.take([])) == []
    assert floats(array[::-2]) == [-2.25, None]
    for places, options, error in (
        ([4], {}, IndexError),
        ([-5], {}, IndexError),
        ([4], {"allow_fill": True}, IndexError),
        ([-2], {"allow_fill": True}, ValueError),
    ):
        with pytest.raises(error):
            array.take(places, **options)
    assert array.to_numpy("float64", na_value=0).tolist() == [1.5, 0, 3, -2.25]
    assert np.isnan(array.to_numpy("float32")[1])
    assert array.to_numpy(object).tolist() == VALUES
    with pytest.raises(ValueError, match="null"):
        array.to_numpy()
    made = lance_io.arrow.PandasBFloat16Array.from_numpy(np.array([1.00390625, 2]))
    assert floats(made) == [1.0, 2.0]
    assert pa.array(made, pa.float64()).to_pylist() == [1.0, 2.0]
    for kind in (lance_io.arrow.BFloat16Type(), lance.arrow.BFloat16Type()):
        rows = pa.Table.from_pandas(pd.DataFrame({"a": made}), pa.schema({"a": kind}))
        assert rows.schema.field("a").type == kind and floats(rows["a"].to_pylist()) == [1.0, 2.0]
    with pytest.raises(TypeError):
        lance_io.arrow.PandasBFloat16Array(pa.array([1]))
    empty = lance_io.arrow.PandasBFloat16Array(pa.chunked_array([], lance_io.arrow.BFloat16Type()))
    assert floats(empty) == [] and empty.isna().tolist() == []


def test_the_name_makes_it_and_pandas_is_loaded_by_nothing_else() -> None:
    code = """
import sys, lance_io.arrow
assert "pandas" not in sys.modules
lance_io.arrow.PandasBFloat16Array
import pandas
series = pandas.Series([1.0, None, pandas.NA], dtype="lance.bfloat16")
assert series.isna().tolist() == [False, True, True], series
assert series.array[0] == 1.0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
