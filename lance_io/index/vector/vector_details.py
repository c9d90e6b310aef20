"""What the index section says of a vector index (spec: indices, 1.1 and 7b)."""

from __future__ import annotations

from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Final

from lance_io.format.wire import parse_message
from lance_io.index.vector.distances import Metric
from lance_io.proto import table_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGE: Final = "vectorindexdetails"
MEAN_DISTANCE: Final = "lance_io:mean_distance"
"""Metadata of `index.idx` that we write: the mean squared distance of the segment's vectors from their centroids."""
METRICS: Final = (Metric.L2, Metric.COSINE, Metric.DOT, Metric.HAMMING)


class Coding(Enum):
    """How an index stores vectors."""

    FLAT = "FLAT"
    PQ = "PQ"
    SQ = "SQ"
    RQ = "RQ"


VERSIONS: Final[Mapping[Coding | None, int]] = {Coding.RQ: 2, None: 2, Coding.FLAT: 1, Coding.PQ: 1, Coding.SQ: 1}
"""The newest version of each coding whose details this release knows."""


@dataclass(frozen=True, slots=True)
class VectorDetails:
    """Settings of a vector index.

    metric   that it measures; None if only the files say it
    coding   how it stores vectors; None if only the files say it
    version  of its format
    """

    metric: Metric | None
    coding: Coding | None
    version: int

    @property
    def is_readable(self) -> bool:
        """Whether this release searches such an index, as far as the details say."""
        return 1 <= self.version <= VERSIONS[self.coding]


def decode_vector_details(type_url: str, value: bytes, version: int) -> VectorDetails | None:
    """The details of a vector index; None for an index of another kind. Raises `FormatError` for damaged details."""
    if type_url.rpartition("/")[2].rpartition(".")[2].lower() != _MESSAGE:
        return None
    message = parse_message(table_pb2.VectorIndexDetails, value, "details of a vector index")
    name = message.WhichOneof("compression")
    if name is None:  # written before details had content
        return VectorDetails(None, None, version)
    metric = METRICS[message.metric] if message.metric < len(METRICS) else None
    return VectorDetails(metric, Coding[name.upper()], version)


def mean_distance_of(metadata: Mapping[str, str]) -> float | None:
    """The mean squared distance of the vectors of a segment from their centroids; None if its file does not say it."""
    try:
        value = float(metadata[MEAN_DISTANCE])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) and value >= 0 else None
