"""How an IVF index is trained and built."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.index.build.vectors.vector_models import DETAILS_URL, VERSION
from lance_io.index.vector.vector_details import Coding
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.format.schema import Field
    from lance_io.index.build.vectors.vector_models import VectorKind, VectorModel

SAMPLE_RATE: Final = 256
MAX_ROUNDS: Final = 50
PARTITION_ROWS: Final = {Coding.FLAT: 4096, Coding.PQ: 8192, Coding.SQ: 8192}
"""Rows of a partition where the arguments say nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """How a model is learned.

    num_partitions  as asked for; None to choose by the number of rows
    sample_rate     vectors for each partition
    max_rounds      of k-means
    centroids       that are given, [partitions, dim] in the computing type, or None
    codebook        that is given, [parts, codewords, width], or None
    transposed      whether product codes are stored column by column
    """

    num_partitions: int | None = None
    sample_rate: int = SAMPLE_RATE
    max_rounds: int = MAX_ROUNDS
    centroids: npt.NDArray[Any] | None = None
    codebook: npt.NDArray[Any] | None = None
    transposed: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class VectorRequest:
    """A checked request for one IVF index, or for one segment of it.

    path         dotted path of the column
    field        the column
    name         of the index
    vectors      type of the column: fixed-size lists
    vector_kind  kind of the index
    training     how to learn a model
    model        that is known; None to learn it
    """

    path: str
    field: Field
    name: str
    vectors: pa.FixedSizeListType
    vector_kind: VectorKind
    training: Training
    model: VectorModel | None = None

    @property
    def columns(self) -> list[str]:
        """The columns of the scan."""
        return [self.path]

    @property
    def names_ids(self) -> bool:
        """Whether it names rows by row id; these are addresses where ids are not stable."""
        return True

    def untrained(self) -> VectorRequest:
        """The same request with a model to learn, of as many partitions."""
        if self.model is None:
            return self
        training = replace(self.training, num_partitions=self.model.num_partitions, transposed=self.model.transposed)
        return replace(self, model=None, training=training)

    def index_version(self, *, stable: bool) -> int:
        """The version of a new segment."""
        return VERSION

    def details(self) -> tuple[str, bytes]:
        """Type URL and content of the details message."""
        return DETAILS_URL, self.vector_kind.details()
