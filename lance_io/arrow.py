"""Arrow extension types for machine learning: bfloat16, and images. Module and names are those of pylance.

    extension                                storage                       a value
    lance.bfloat16                           fixed_size_binary(2)          the upper half of a float32
    lance.arrow.image_uri                    string or large_string        the URI of an image
    lance.arrow.encoded_image                binary or large_binary        an image file, of any format
    lance.arrow.fixed_shape_image_tensor     fixed_size_list of pixels     pixels; the shape is in the type

Import this module to read columns of images as these types; otherwise they are read as their storage types.
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
    if name == "PandasBFloat16Array":  # lazy: it loads pandas
        return import_module(PANDAS_MODULE).PandasBFloat16Array
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# -- bfloat16 ----------------------------------------------------------------------------------------------------------


def bfloat16_array(values: Iterable[float | None]) -> BFloat16Array:
    """Convert numbers to an array of bfloat16, each rounded to the nearest.

    Args:
        values: Numbers, and None for nulls.

    Returns:
        An array with one bfloat16 for each value.
    """
    return BFloat16Array.from_float32(
        pa.array([None if value is None else float(value) for value in values], pa.float32())
    )


def cast(arr: Any, target_type: pa.DataType | str, *args: Any, **kwargs: Any) -> Any:
    """`pyarrow.compute.cast` with support for bfloat16: from and to floats, also inside fixed-size lists.

    Args:
        arr: An array or chunked array.
        target_type: A type or its name, for example "bfloat16".
        args: Passed to `pyarrow.compute.cast`.
        kwargs: Passed to `pyarrow.compute.cast`.

    Returns:
        The array or chunked array of the target type.

    Raises:
        ValueError: Source and target are fixed-size lists of different sizes.
        pyarrow.ArrowNotImplementedError: The cast is not supported, such as one from integers to bfloat16.
        pyarrow.ArrowInvalid: A value does not fit the target type.
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
        ours = BFloat16Array.from_float32(pc.cast(arr, pa.float32(), safe=False))
        return pa.ExtensionArray.from_storage(target, ours.storage)
    return pc.cast(arr, target, *args, **kwargs)


def _is_bfloat16(dtype: pa.DataType) -> bool:
    """Whether a type is bfloat16, implemented by any class."""
    return isinstance(dtype, pa.BaseExtensionType) and dtype.extension_name == _BFLOAT16


def _floats(array: pa.ExtensionArray) -> pa.FloatArray:
    ours: BFloat16Array = pa.ExtensionArray.from_storage(BFloat16Type(), array.storage)
    return ours.to_float32()


def _cast_lists(arr: pa.FixedSizeListArray, target: pa.FixedSizeListType, *args: Any, **kwargs: Any) -> pa.Array:
    size = arr.type.list_size
    if size != target.list_size:
        raise UsageError(f"Only support casting fixed-size lists of one size, found {size} and {target.list_size}")
    items = arr.values.slice(arr.offset * size, len(arr) * size)  # `flatten` would skip the items of nulls
    mask = arr.is_null() if arr.null_count else None
    return pa.FixedSizeListArray.from_arrays(cast(items, target.value_type, *args, **kwargs), type=target, mask=mask)


# -- types of images ---------------------------------------------------------------------------------------------------


class ImageScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One image; `as_py` returns its URI, bytes or pixels."""

    def as_py(self, **kwargs: Any) -> Any:
        """Convert the storage value to a Python object.

        Args:
            kwargs: Passed to `as_py` of the storage value.

        Returns:
            The URI, bytes or pixels; None for a null.
        """
        return None if self.value is None else self.value.as_py(**kwargs)


class ImageURIScalar(ImageScalar):
    """The URI of an image."""


class EncodedImageScalar(ImageScalar):
    """An image file."""


class FixedShapeImageTensorScalar(ImageScalar):
    """The pixels of an image."""

    def to_numpy(self) -> Pixels:
        """Convert the pixels to numpy.

        Returns:
            An array of the image's shape.
        """
        return np.asarray(self.value.values.to_numpy()).reshape(self.type.shape)


class ImageURIType(pa.ExtensionType):  # type: ignore[misc]
    """The type of columns of image URIs.

    Args:
        storage_type: `pa.string()`, which is the default, or `pa.large_string()`.
    """

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
    """The type of columns of image files.

    Args:
        storage_type: `pa.binary()`, which is the default, or `pa.large_binary()`.
    """

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
    """The type of columns of pixels, for images of equal shape.

    Args:
        arrow_type: Type of one number.
        shape: Shape of an image, usually (height, width, channels).
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
    """Base class of the arrays of images."""

    @classmethod
    def from_array(cls, images: Any) -> ImageArray:
        """Build an array of URIs, of image files or of pixels, depending on the input.

        Args:
            images: An array of strings, binary or tensors, an array of images, or an iterable of URIs or bytes.

        Returns:
            An `ImageURIArray`, `EncodedImageArray` or `FixedShapeImageTensorArray`.

        Raises:
            TypeError: `images` is anything else.
        """
        if isinstance(images, ImageArray):
            return images
        if isinstance(images, pa.FixedShapeTensorArray):
            dtype = FixedShapeImageTensorType(images.type.value_type, images.type.shape)
            return _of_storage(FixedShapeImageTensorArray, dtype, images.storage)
        if not isinstance(images, pa.Array):
            values = list(images) if isinstance(images, Iterable) else images
            if not isinstance(values, list):
                raise TypeError(f"Cannot build an ImageArray from {type(images)}")
            texts = [str(value) if isinstance(value, Path) else value for value in values]
            images = pa.array(texts, None if values else pa.string())
        if pa.types.is_string(images.type) or pa.types.is_large_string(images.type):
            return ImageURIArray.from_uris(images)
        if pa.types.is_binary(images.type) or pa.types.is_large_binary(images.type):
            return _of_storage(EncodedImageArray, EncodedImageType(images.type), images)
        raise TypeError(f"Cannot build an ImageArray from an array of {images.type}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} images>"


class ImageURIArray(ImageArray):
    """URIs of images: local paths, HTTP URLs, and URIs of `pyarrow.fs`."""

    @classmethod
    def from_uris(cls, uris: Any) -> ImageURIArray:
        """Build an array of URIs.

        Args:
            uris: An array of strings, or an iterable of strings and paths; None stands for null.

        Returns:
            The array of URIs.

        Raises:
            TypeError: `uris` is anything else.
        """
        if isinstance(uris, (pa.StringArray, pa.LargeStringArray)):
            storage = uris
        elif isinstance(uris, Iterable) and not isinstance(uris, (str, bytes)):
            storage = pa.array([None if uri is None else str(uri) for uri in uris], pa.string())
        else:
            raise TypeError(f"Cannot build a ImageURIArray from {type(uris)}")
        return _of_storage(ImageURIArray, ImageURIType(storage.type), storage)

    def read_uris(self, storage_type: pa.DataType | None = None) -> EncodedImageArray:
        """Read all images, 16 concurrently; nulls stay null.

        Args:
            storage_type: `pa.binary()`, which is the default, or `pa.large_binary()`.

        Returns:
            The image files, in the order of the URIs.

        Raises:
            ValueError: `storage_type` is anything else.
            OSError: An image cannot be read.
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
        """Decode all images. They must have the same shape.

        Args:
            decoder: Function from an array of binary to pixels of shape (image, ...); None decodes with Pillow.

        Returns:
            The pixels, in the order of the files.

        Raises:
            ValueError: The images have different shapes, or one is null.
            ModuleNotFoundError: Pillow is not installed and `decoder` is None.
        """
        if self.null_count:
            raise UsageError("a null has no pixels: drop nulls before images are decoded")
        pixels = (decoder or _decode)(self.storage)
        values = pa.array(np.ascontiguousarray(pixels).reshape(-1))
        dtype = FixedShapeImageTensorType(values.type, pixels.shape[1:])
        lists = pa.FixedSizeListArray.from_arrays(values, type=dtype.storage_type)
        return _of_storage(FixedShapeImageTensorArray, dtype, lists)


def _decode(files: pa.Array) -> Pixels:
    from PIL import Image

    def pixels(file: bytes) -> Pixels:
        with Image.open(io.BytesIO(file)) as image:
            return np.asarray(image)

    return np.stack([pixels(file) for file in files.to_pylist()])


class FixedShapeImageTensorArray(ImageArray):
    """Pixels of images of equal shape."""

    def to_numpy(self, zero_copy_only: bool = False, **_kwargs: Any) -> Pixels:
        """Convert the pixels to numpy.

        Args:
            zero_copy_only: Ignored.
            _kwargs: Ignored.

        Returns:
            An array of shape (image, *shape).

        Raises:
            ValueError: An image is null.
        """
        if self.null_count:
            raise UsageError("a null has no pixels: drop nulls before")
        return np.asarray(self.storage.flatten().to_numpy(zero_copy_only=False)).reshape(len(self), *self.type.shape)

    def to_encoded(
        self, encoder: Callable[[Pixels], pa.Array] | None = None, storage_type: pa.DataType | None = None
    ) -> EncodedImageArray:
        """Encode all images as files.

        Args:
            encoder: Function from pixels of shape (image, *shape) to an array of binary; None encodes PNG with Pillow.
            storage_type: `pa.binary()`, which is the default, or `pa.large_binary()`.

        Returns:
            The image files, in the order of the images.

        Raises:
            ValueError: An image is null.
            ModuleNotFoundError: Pillow is not installed and `encoder` is None.
        """
        dtype = pa.binary() if storage_type is None else storage_type
        files = (encoder or _encode)(self.to_numpy())
        return _of_storage(EncodedImageArray, EncodedImageType(dtype), files.cast(dtype))


def _encode(pixels: Pixels) -> pa.Array:
    from PIL import Image

    def file(image: Pixels) -> bytes:
        target = io.BytesIO()
        Image.fromarray(image).save(target, format="PNG")
        return target.getvalue()

    return pa.array([file(image) for image in pixels], pa.binary())


def _of_storage(cls: type[A], dtype: pa.ExtensionType, storage: pa.Array) -> A:
    """An array of an extension type whose array class is `cls`."""
    array: A = pa.ExtensionArray.from_storage(dtype, storage)
    return array


for _example in (ImageURIType(), EncodedImageType(), FixedShapeImageTensorType(pa.uint8(), (1,))):
    add_extension(_example)
