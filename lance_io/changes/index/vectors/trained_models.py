"""The public values of learned models. Names, parameters and files are pylance's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.file.reader import LanceFileReader
from lance_io.file.write.writers import LanceFileWriter

if TYPE_CHECKING:
    from typing import Self


class IvfModel:
    """Centroids of partitions.

    Args:
        centroids: The centroids, an Arrow array of fixed-size lists.
        distance_type: The metric, "l2", "cosine", "dot" or "hamming".
    """

    def __init__(self, centroids: pa.Array, distance_type: str) -> None:
        self.centroids = centroids
        self.distance_type = distance_type

    @property
    def num_partitions(self) -> int:
        """Number of partitions."""
        return len(self.centroids)

    def save(self, uri: str, *, storage_options: dict[str, str] | None = None) -> None:
        """Write the model to a Lance file.

        Args:
            uri: Where to write it.
            storage_options: Options of the store.
        """
        _save(uri, "centroids", self.centroids, {"distance_type": self.distance_type}, storage_options)

    @classmethod
    def load(cls, uri: str, *, storage_options: dict[str, str] | None = None) -> Self:
        """Read a model from a Lance file.

        Args:
            uri: Where it is.
            storage_options: Options of the store.

        Returns:
            The model.

        Raises:
            FormatError: The file holds no such model.
        """
        centroids, metadata = _load(uri, "centroids", storage_options)
        if "distance_type" not in metadata:
            raise FormatError("expected distance_type in the metadata of a file with centroids", path=uri)
        return cls(centroids, metadata["distance_type"])


class PqModel:
    """A codebook of product codes.

    Args:
        num_subvectors: Parts of a vector.
        codebook: The codewords, an Arrow array of fixed-size lists with the dimension of the vectors. Its numbers have
            the order [parts, codewords, width].
        num_bits: Bits of a code.
    """

    def __init__(self, num_subvectors: int, codebook: pa.FixedSizeListArray, *, num_bits: int = 8) -> None:
        self.num_subvectors = num_subvectors
        self.codebook = codebook
        self.num_bits = num_bits

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return int(self.codebook.type.list_size)

    def save(self, uri: str, *, storage_options: dict[str, str] | None = None) -> None:
        """Write the model to a Lance file.

        Args:
            uri: Where to write it.
            storage_options: Options of the store.
        """
        about = {"num_subvectors": str(self.num_subvectors), "num_bits": str(self.num_bits)}
        _save(uri, "codebook", self.codebook, about, storage_options)

    @classmethod
    def load(cls, uri: str, *, storage_options: dict[str, str] | None = None) -> Self:
        """Read a model from a Lance file.

        Args:
            uri: Where it is.
            storage_options: Options of the store.

        Returns:
            The model.

        Raises:
            FormatError: The file holds no such model.
        """
        codebook, metadata = _load(uri, "codebook", storage_options)
        try:
            numbers = int(metadata["num_subvectors"]), int(metadata.get("num_bits", "8"))
        except (KeyError, ValueError) as error:
            raise FormatError("expected num_subvectors and num_bits in the metadata of a codebook", path=uri) from error
        return cls(numbers[0], codebook, num_bits=numbers[1])


def _save(
    uri: str, name: str, values: pa.Array, metadata: dict[str, str], storage_options: dict[str, str] | None
) -> None:
    schema = pa.schema([pa.field(name, values.type)], metadata=metadata)
    with LanceFileWriter(uri, schema, storage_options=storage_options) as writer:
        writer.write_batch(pa.table([values], schema=schema))


def _load(uri: str, name: str, storage_options: dict[str, str] | None) -> tuple[pa.Array, dict[str, str]]:
    reader = LanceFileReader(uri, storage_options=storage_options)
    schema = reader.metadata().schema
    if name not in schema.names or not pa.types.is_fixed_size_list(schema.field(name).type):
        raise FormatError(f"expected a column {name} of fixed-size lists, the file has {schema.names}", path=uri)
    stored: dict[Any, Any] = schema.metadata or {}
    metadata = {key.decode(): value.decode("utf-8", "replace") for key, value in stored.items()}
    values = reader.read_all().to_table().column(name).combine_chunks()
    return (values.chunk(0) if isinstance(values, pa.ChunkedArray) else values), metadata


def as_lists(matrix: Any, item: pa.DataType) -> pa.FixedSizeListArray:
    """A matrix [n, dim] as an Arrow array of a column's type of numbers."""
    flat = pa.array(matrix.astype(item.to_pandas_dtype(), copy=False).reshape(-1), item)
    return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
