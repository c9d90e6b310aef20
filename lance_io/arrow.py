"""Arrow types of machine learning, under the module name that pylance gives them: bfloat16, and images.

    extension                                storage                       a value
    lance.bfloat16                           fixed_size_binary(2)          half of a float32
    lance.arrow.image_uri                    string or large_string        where an image is
    lance.arrow.encoded_image                binary or large_binary        an image file, of any format
    lance.arrow.fixed_shape_image_tensor     fixed_size_list of pixels     pixels; the shape is in the type

Columns of images are read as these types once this module is imported, and as their storage otherwise.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.errors import UsageError
from lance_io.format.extensions import (
    PANDAS_MODULE,
    BFloat16,
    BFloat16Array,
    BFloat16Scalar,
    BFloat16Type,
    add_extension,
)
from lance_io.runtime.pool import LastingPool

if TYPE_CHECKING:
    from lance_io.format.pandas_bfloat16 import PandasBFloat16Array as PandasBFloat16Array

__all__ = ["BFloat16", "BFloat16Array", "BFloat16Scalar", "BFloat16Type", "EncodedImageArray", "EncodedImageScalar"]
__all__ += ["EncodedImageType", "FixedShapeImageTensorArray", "FixedShapeImageTensorScalar"]
__all__ += ["FixedShapeImageTensorType", "ImageArray", "ImageScalar", "ImageURIArray", "ImageURIScalar", "ImageURIType"]
__all__ += ["bfloat16_array", "cast"]

A = TypeVar("A", bound="ImageArray")

Pixels = np.ndarray[Any, Any]
_BFLOAT16: Final = "lance.bfloat16"
_READS_AT_ONCE: Final = 16


def __getattr__(name: str) -> Any:
    if name == "PandasBFloat16Array":  # which loads pandas
        return import_module(PANDAS_MODULE).PandasBFloat16Array
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# -- bfloat16 ----------------------------------------------------------------------------------------------------------


def bfloat16_array(values: Iterable[float | None]) -> BFloat16Array:
    """An array of bfloat16 of numbers, each the nearest to one of `values`, with nulls for None."""
    return BFloat16Array.from_float32(
        pa.array([None if value is None else float(value) for value in values], pa.float32())
    )


def cast(arr: Any, target_type: pa.DataType | str, *args: Any, **kwargs: Any) -> Any:
    """`pyarrow.compute.cast`, which also knows bfloat16: from and to floats, and inside of fixed-size lists of floats.

    arr          an array or chunked array
    target_type  a type, or its name, "bfloat16" among them
    Raises `ValueError` for fixed-size lists of another size, and what `pyarrow.compute.cast` raises.
    """
    target = (
        BFloat16Type()
        if target_type == "bfloat16"
        else pa.type_for_alias(target_type)
        if isinstance(target_type, str)
        else target_type
    )
    if isinstance(arr, pa.ChunkedArray):
        return pa.chunked_array([cast(chunk, target, *args, **kwargs) for chunk in arr.chunks], target)
    if arr.type == target:
        return arr
    if isinstance(target, pa.FixedSizeListType) and isinstance(arr.type, pa.FixedSizeListType):
        if _is_bfloat16(target.value_type) or _is_bfloat16(arr.type.value_type):
            return _cast_lists(arr, target, *args, **kwargs)
    if _is_bfloat16(arr.type):
        return pc.cast(_floats(arr), target, *args, **kwargs)
    if _is_bfloat16(target):
        if not pa.types.is_floating(arr.type):
            raise pa.ArrowNotImplementedError(
                f"cast from {arr.type} to bfloat16: only floats are, cast to float32 first"
            )
        made = BFloat16Array.from_float32(pc.cast(arr, pa.float32(), safe=False))
        return pa.ExtensionArray.from_storage(target, made.storage)
    return pc.cast(arr, target, *args, **kwargs)


def _is_bfloat16(dtype: pa.DataType) -> bool:
    """Whether it is bfloat16, by whichever class."""
    return isinstance(dtype, pa.BaseExtensionType) and dtype.extension_name == _BFLOAT16


def _floats(array: pa.ExtensionArray) -> pa.FloatArray:
    ours: BFloat16Array = pa.ExtensionArray.from_storage(BFloat16Type(), array.storage)
    return ours.to_float32()


def _cast_lists(arr: pa.FixedSizeListArray, target: pa.FixedSizeListType, *args: Any, **kwargs: Any) -> pa.Array:
    size = arr.type.list_size
    if size != target.list_size:
        raise UsageError(f"Only support casting fixed-size lists of one size, found {size} and {target.list_size}")
    items = arr.values.slice(arr.offset * size, len(arr) * size)  # `flatten` would leave out those of nulls
    mask = arr.is_null() if arr.null_count else None
    return pa.FixedSizeListArray.from_arrays(cast(items, target.value_type, *args, **kwargs), type=target, mask=mask)


# -- types of images ---------------------------------------------------------------------------------------------------


class ImageScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One image; `as_py` gives the URI, the bytes or the pixels of it."""

    def as_py(self, **kwargs: Any) -> Any:
        """The value as it is stored."""
        return None if self.value is None else self.value.as_py(**kwargs)


class ImageURIScalar(ImageScalar):
    """Where an image is."""


class EncodedImageScalar(ImageScalar):
    """An image file."""


class FixedShapeImageTensorScalar(ImageScalar):
    """The pixels of an image."""

    def to_numpy(self) -> Pixels:
        """As an array of the image's shape."""
        return np.asarray(self.value.values.to_numpy()).reshape(self.type.shape)


class ImageURIType(pa.ExtensionType):  # type: ignore[misc]
    """The type of URIs of images."""

    def __init__(self, storage_type: pa.DataType | None = None) -> None:
        super().__init__(pa.string() if storage_type is None else storage_type, "lance.arrow.image_uri")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        return cls(storage_type)

    def __arrow_ext_class__(self) -> type[ImageURIArray]:
        return ImageURIArray

    def __arrow_ext_scalar_class__(self) -> type[ImageURIScalar]:
        return ImageURIScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.storage_type,)


class EncodedImageType(pa.ExtensionType):  # type: ignore[misc]
    """The type of image files."""

    def __init__(self, storage_type: pa.DataType | None = None) -> None:
        super().__init__(pa.binary() if storage_type is None else storage_type, "lance.arrow.encoded_image")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        return cls(storage_type)

    def __arrow_ext_class__(self) -> type[EncodedImageArray]:
        return EncodedImageArray

    def __arrow_ext_scalar_class__(self) -> type[EncodedImageScalar]:
        return EncodedImageScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.storage_type,)


class FixedShapeImageTensorType(pa.ExtensionType):  # type: ignore[misc]
    """The type of pixels of images that all have one shape.

    arrow_type  of one number
    shape       of an image, mostly (height, width, channels)
    """

    def __init__(self, arrow_type: pa.DataType, shape: Iterable[int]) -> None:
        self.arrow_type = arrow_type
        self.shape = tuple(shape)
        super().__init__(pa.list_(arrow_type, prod(self.shape)), "lance.arrow.fixed_shape_image_tensor")

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"shape": list(self.shape)}).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        return cls(storage_type.value_type, json.loads(serialized)["shape"])

    def __arrow_ext_class__(self) -> type[FixedShapeImageTensorArray]:
        return FixedShapeImageTensorArray

    def __arrow_ext_scalar_class__(self) -> type[FixedShapeImageTensorScalar]:
        return FixedShapeImageTensorScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.arrow_type, self.shape)


# -- arrays of images --------------------------------------------------------------------------------------------------


class ImageArray(pa.ExtensionArray):  # type: ignore[misc]
    """Base of the arrays of images."""

    @classmethod
    def from_array(cls, images: Any) -> ImageArray:
        """The array of images that fits: of URIs, of image files or of pixels.

        images  an array of strings, binary or tensors, an array of images, or an iterable of URIs or of bytes
        Raises `TypeError` for anything else.
        """
        if isinstance(images, ImageArray):
            return images
        if isinstance(images, pa.FixedShapeTensorArray):
            made = FixedShapeImageTensorType(images.type.value_type, images.type.shape)
            return _of_storage(FixedShapeImageTensorArray, made, images.storage)
        if not isinstance(images, pa.Array):
            found = list(images) if isinstance(images, Iterable) else images
            if not isinstance(found, list):
                raise TypeError(f"Cannot build an ImageArray from {type(images)}")
            images = pa.array(
                [str(one) if isinstance(one, Path) else one for one in found], None if found else pa.string()
            )
        if pa.types.is_string(images.type) or pa.types.is_large_string(images.type):
            return ImageURIArray.from_uris(images)
        if pa.types.is_binary(images.type) or pa.types.is_large_binary(images.type):
            return _of_storage(EncodedImageArray, EncodedImageType(images.type), images)
        raise TypeError(f"Cannot build an ImageArray from an array of {images.type}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} images>"


class ImageURIArray(ImageArray):
    """Where images are: local paths, and URIs of what `pyarrow.fs` and HTTP reach."""

    @classmethod
    def from_uris(cls, uris: Any) -> ImageURIArray:
        """From an array of strings, or an iterable of texts and paths; None is null. Raises `TypeError` for others."""
        if isinstance(uris, (pa.StringArray, pa.LargeStringArray)):
            storage = uris
        elif isinstance(uris, Iterable) and not isinstance(uris, (str, bytes)):
            storage = pa.array([None if uri is None else str(uri) for uri in uris], pa.string())
        else:
            raise TypeError(f"Cannot build a ImageURIArray from {type(uris)}")
        return _of_storage(ImageURIArray, ImageURIType(storage.type), storage)

    def read_uris(self, storage_type: pa.DataType | None = None) -> EncodedImageArray:
        """Read all images, several at once; nulls stay.

        storage_type  `pa.binary()`, which is the default, or `pa.large_binary()`
        Raises `ValueError` for another one, and what reading raises.
        """
        dtype = pa.binary() if storage_type is None else storage_type
        if dtype not in (pa.binary(), pa.large_binary()):
            raise UsageError("storage_type must be a binary type")
        with LastingPool(_READS_AT_ONCE, "lance-io-images") as threads:
            files = list(threads.map(_read_image, self.storage.to_pylist()))
        return _of_storage(EncodedImageArray, EncodedImageType(dtype), pa.array(files, dtype))


def _read_image(uri: str | None) -> bytes | None:
    if uri is None:
        return None
    if uri.startswith(("http://", "https://")):
        with urlopen(uri) as answer:
            return bytes(answer.read())
    if "://" not in uri:
        return Path(uri).read_bytes()
    from pyarrow.fs import FileSystem

    filesystem, path = FileSystem.from_uri(uri)
    with filesystem.open_input_file(path) as file:
        return bytes(file.read())


class EncodedImageArray(ImageArray):
    """Image files, of any format."""

    def to_tensor(self, decoder: Callable[[pa.Array], Pixels] | None = None) -> FixedShapeImageTensorArray:
        """The pixels of all images, which have to be of one shape.

        decoder  gives an array of (image, ...) for an array of binary; None decodes with Pillow
        Raises `ValueError` for images of several shapes and for nulls, `ModuleNotFoundError` without Pillow.
        """
        if self.null_count:
            raise UsageError("a null has no pixels: drop nulls before images are decoded")
        pixels = (decoder or _decode)(self.storage)
        values = pa.array(np.ascontiguousarray(pixels).reshape(-1))
        made = FixedShapeImageTensorType(values.type, pixels.shape[1:])
        return _of_storage(
            FixedShapeImageTensorArray, made, pa.FixedSizeListArray.from_arrays(values, type=made.storage_type)
        )


def _decode(files: pa.Array) -> Pixels:
    from PIL import Image

    def pixels(file: bytes) -> Pixels:
        with Image.open(io.BytesIO(file)) as image:
            return np.asarray(image)

    return np.stack([pixels(file) for file in files.to_pylist()])


class FixedShapeImageTensorArray(ImageArray):
    """Pixels of images of one shape."""

    def to_numpy(self, zero_copy_only: bool = False, **_kwargs: Any) -> Pixels:
        """As an array of (image, *shape). Raises `ValueError` for nulls."""
        if self.null_count:
            raise UsageError("a null has no pixels: drop nulls before")
        return np.asarray(self.storage.flatten().to_numpy(zero_copy_only=False)).reshape(len(self), *self.type.shape)

    def to_encoded(
        self, encoder: Callable[[Pixels], pa.Array] | None = None, storage_type: pa.DataType | None = None
    ) -> EncodedImageArray:
        """As image files.

        encoder       gives an array of binary for pixels of (image, *shape); None makes PNG with Pillow
        storage_type  of the files, `pa.binary()` or `pa.large_binary()`
        Raises `ModuleNotFoundError` without Pillow.
        """
        dtype = pa.binary() if storage_type is None else storage_type
        files = (encoder or _encode)(self.to_numpy())
        return _of_storage(EncodedImageArray, EncodedImageType(dtype), files.cast(dtype))


def _encode(pixels: Pixels) -> pa.Array:
    from PIL import Image

    def file(one: Pixels) -> bytes:
        target = io.BytesIO()
        Image.fromarray(one).save(target, format="PNG")
        return target.getvalue()

    return pa.array([file(one) for one in pixels], pa.binary())


def _of_storage(cls: type[A], dtype: pa.ExtensionType, storage: pa.Array) -> A:
    """An array of an extension type, which has this class."""
    array: A = pa.ExtensionArray.from_storage(dtype, storage)
    return array


for _example in (ImageURIType(), EncodedImageType(), FixedShapeImageTensorType(pa.uint8(), (1,))):
    add_extension(_example)
