"""`lance_io.arrow` against `lance.arrow`: bfloat16 values, casts, arrays of images."""

from __future__ import annotations

import io
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import lance
import lance.arrow as theirs
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import lance_io
import lance_io.arrow as ours

RANDOM = np.random.default_rng(16)
NUMBERS = [*RANDOM.standard_normal(2000), *(10.0 ** RANDOM.uniform(-45, 39, 2000)), 0.0, -0.0, np.inf, -np.inf]
NUMBERS += [1.00390625, 1.01171875, 3.39e38, 3.4e38, 1e-40, np.nan, 65504.0]


def test_bfloat16_rounds_as_pylance() -> None:
    found, expected = ours.bfloat16_array([*NUMBERS, None]), theirs.bfloat16_array([*NUMBERS, None])
    assert found.storage.equals(expected.storage)
    floats = [None if one is None else one.as_float() for one in expected.to_pylist()]
    assert np.array_equal(np.array(found.to_pylist(), float), np.array(floats, float), equal_nan=True)
    for number in NUMBERS[:200]:
        assert ours.BFloat16(number) == theirs.BFloat16(number).as_float()
    assert ours.BFloat16.from_bytes(b"\x8c\x3f") == theirs.BFloat16.from_bytes(b"\x8c\x3f").as_float() == 1.09375
    for make in (ours, theirs):
        with pytest.raises(ValueError, match="expected 2 bytes, got 3"):
            make.BFloat16.from_bytes(b"abc")
        with pytest.raises(TypeError):
            make.bfloat16_array([[]])
        assert len(make.bfloat16_array([])) == 0
        with pytest.raises(ValueError, match="Cannot convert null values to numpy"):
            make.bfloat16_array([None]).to_numpy()
    assert len(ours.bfloat16_array([]).to_float32()) == 0


def test_bfloat16_is_shown_as_by_pylance() -> None:
    for bits in [*range(0, 1 << 16, 7), 0x3EF5, 0xBEC5, 0x0F80, 0xEC80]:  # halves of a digit, powers of two
        raw = bits.to_bytes(2, "little")
        assert str(ours.BFloat16.from_bytes(raw)) == repr(theirs.BFloat16.from_bytes(raw))
    arrays = [make.bfloat16_array([*NUMBERS, None]) for make in (ours, theirs)]
    assert [str(one) for one in arrays[0]] == [str(one) for one in arrays[1]]
    assert [repr(one) for one in arrays[0].to_pylist()] == [repr(one) for one in arrays[1].to_pylist()]
    for part in (slice(0, 0), slice(2, 4), slice(-3, None), slice(0, 21), slice(0, 22), slice(5, 500)):
        found, expected = (one[part] for one in arrays)
        assert str(found) == str(expected)
        shown = re.sub("0x[0-9a-f]{16}", "0x", repr(found)).replace("lance_io", "lance")
        assert shown == re.sub("0x[0-9a-f]{16}", "0x", repr(expected))


class StoredHalf(float):
    """What `ml_dtypes`, which is not installed here, calls `bfloat16`; pylance compares with its class and bytes."""

    def tobytes(self) -> bytes:
        return bytes(theirs.bfloat16_array([self]).storage[0].as_py())


def test_bfloat16_compares_as_that_of_pylance(monkeypatch: pytest.MonkeyPatch) -> None:
    StoredHalf.__name__, StoredHalf.__module__ = "bfloat16", "ml_dtypes"
    monkeypatch.setitem(sys.modules, "ml_dtypes", SimpleNamespace(bfloat16=StoredHalf))
    values = [1.1, 2.0, -0.0, np.nan, np.inf, None]
    found = []
    for make in (ours, theirs):
        array = make.bfloat16_array(values)
        others = [
            *array,
            *array.to_pylist(),
            *(StoredHalf(ours.BFloat16(one)) for one in values[:5]),
            1.1015625,
            2.0,
            "2",
        ]
        found.append([[one == other for other in others] + [one != other for other in others] for one in array])
        assert array[0] == make.BFloat16(1.1) and make.BFloat16(1.1) in array.to_pylist()
    assert found[0] == found[1]
    array = ours.bfloat16_array([2.0, 2.0, None])
    assert len(set(array)) == 2, "equal values have one hash"


@pytest.mark.parametrize("dtype", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_casts_of_bfloat16(dtype: pa.DataType) -> None:
    values = pa.array([1.5, 2.25, None, -3.0], pa.float32()).cast(dtype)
    made = ours.cast(values, "bfloat16")
    assert made.storage.equals(theirs.bfloat16_array(values.to_pylist()).storage)
    assert ours.cast(values, theirs.BFloat16Type()).type == theirs.BFloat16Type()
    for one in (made, theirs.bfloat16_array([1.5, 2.25, None, -3.0])):
        assert ours.cast(one, dtype).equals(values)
        assert ours.cast(one[1:], dtype).equals(values[1:])
    assert ours.cast(pa.chunked_array([values]), "bfloat16").type == ours.BFloat16Type()
    with pytest.raises(pa.ArrowNotImplementedError, match="bfloat16"):
        ours.cast(pa.array([1]), "bfloat16")


def test_casts_inside_of_fixed_size_lists() -> None:
    values = pa.array([[1.0, 2.0], None, [3.5, 4.25]], pa.list_(pa.float32(), 2))
    made = ours.cast(values, pa.list_(ours.BFloat16Type(), 2))
    assert made.is_null().to_pylist() == [False, True, False]
    for part in (slice(None), slice(1, None)):
        assert ours.cast(made[part], values.type).to_pylist() == values[part].to_pylist()
    with pytest.raises(ValueError, match="size"):
        ours.cast(values, pa.list_(ours.BFloat16Type(), 4))
    assert ours.cast(values, pa.list_(pa.float64(), 2)).to_pylist() == values.to_pylist()
    assert ours.cast(pa.array([1, 2]), pa.string()).to_pylist() == ["1", "2"]
    assert ours.cast(pa.array([1.5]), "int32", safe=False).to_pylist() == [1]


@pytest.fixture
def uris(tmp_path: Path) -> list[str]:
    """Three images, the last of another shape."""
    for number, shape in enumerate([(3, 4, 3), (3, 4, 3), (5, 5, 3)]):
        Image.fromarray(RANDOM.integers(0, 255, shape, dtype=np.uint8)).save(tmp_path / f"{number}.png")
    return [str(tmp_path / f"{number}.png") for number in range(3)]


def test_arrays_of_images(uris: list[str]) -> None:
    found, expected = (make.ImageURIArray.from_uris(uris[:2]) for make in (ours, theirs))
    for step in (
        lambda one: one,
        lambda one: one.read_uris(),
        lambda one: one.read_uris(pa.large_binary()),
        lambda one: one.read_uris().to_tensor(),
    ):
        assert step(found).storage.equals(step(expected).storage)
        assert step(found).type.extension_name == step(expected).type.extension_name
        assert step(found).type.__arrow_ext_serialize__() == step(expected).type.__arrow_ext_serialize__()
        assert pickle.loads(pickle.dumps(step(found).type)) == step(found).type
        assert step(found).to_pylist() == step(expected).to_pylist()
    pixels = found.read_uris().to_tensor().to_numpy()
    assert np.array_equal(pixels, expected.read_uris().to_tensor().to_numpy()) and pixels.shape == (2, 3, 4, 3)
    again = found.read_uris().to_tensor().to_encoded()
    assert np.array_equal(again.to_tensor().to_numpy(), pixels)
    assert np.array_equal(found.read_uris().to_tensor()[1].to_numpy(), pixels[1])
    urls = [f"file://{uri}" for uri in uris[:2]]
    assert ours.ImageURIArray.from_uris(urls).read_uris().storage.equals(found.read_uris().storage)

    def decode(files: pa.Array) -> np.ndarray:
        return np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files.to_pylist()]) // 2

    assert np.array_equal(found.read_uris().to_tensor(decode).to_numpy(), pixels // 2)


def test_which_array_of_images(uris: list[str]) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 2, 2, 3), np.uint8))
    for images in (uris, pa.array(uris), pa.array(uris, pa.large_string()), tensors, []):
        assert type(ours.ImageArray.from_array(images)).__name__ == type(theirs.ImageArray.from_array(images)).__name__
    files = ours.ImageURIArray.from_uris(uris).read_uris()
    assert ours.ImageArray.from_array(files) is files
    assert ours.ImageArray.from_array(files.storage).storage.equals(files.storage)
    assert ours.ImageURIArray.from_uris([Path(uris[0])]).to_pylist() == uris[:1]
    for make in (ours, theirs):
        with pytest.raises(TypeError, match="Cannot build a ImageURIArray from"):
            make.ImageURIArray.from_uris(5)
        with pytest.raises(TypeError):
            make.ImageArray.from_array([1.5])
        with pytest.raises(ValueError, match="storage_type must be a binary type"):
            make.ImageURIArray.from_uris(uris).read_uris(pa.string())
        with pytest.raises(ValueError, match="same shape"):
            make.ImageURIArray.from_uris(uris).read_uris().to_tensor()
        with pytest.raises(FileNotFoundError):
            make.ImageURIArray.from_uris([uris[0] + ".gone"]).read_uris()
    nulls = ours.ImageURIArray.from_uris([uris[0], None])  # pylance reads a file whose name is "None"
    assert nulls.read_uris().is_null().to_pylist() == [False, True]
    with pytest.raises(ValueError, match="drop nulls"):
        nulls.read_uris().to_tensor()


def test_columns_of_images_in_tables_of_both(uris: list[str], tmp_path: Path) -> None:
    encoded = ours.ImageURIArray.from_uris(uris[:2]).read_uris()
    arrays = [ours.ImageURIArray.from_uris(uris[:2]), encoded, encoded.to_tensor(), ours.bfloat16_array([1.5, 2.5])]
    lance_io.write_dataset(pa.table(arrays, ["uri", "file", "pixels", "half"]), str(tmp_path / "t"))
    found = lance_io.dataset(str(tmp_path / "t")).to_table()
    expected = lance.dataset(str(tmp_path / "t")).to_table()
    assert found.equals(expected)
    assert [one.extension_name for one in expected.schema.types] == [one.type.extension_name for one in arrays]  # type: ignore[attr-defined]
    lance.write_dataset(expected, str(tmp_path / "u"))
    assert lance_io.dataset(str(tmp_path / "u")).to_table().equals(expected)
    code = "import lance_io, lance_io.arrow as a, sys; print(*[type(x) in vars(a).values() for x in "
    code += "lance_io.dataset(sys.argv[1]).schema.types], 'lance' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "u")], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True"] * 4 + ["False"]
