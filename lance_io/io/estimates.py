"""Upper bounds of the bytes of requests before their reads are planned: never less than the reads hold. Pure.

Which reads a request shares depends on which requests are admitted, and its admission depends on the bytes that it
holds. So requests are charged one after the other, each for the bytes that it adds to those before it:

    file      ----aaaa------bb-------------------------------------cccc-----
    a         its bytes
    c         its bytes and the longest gap, as `a` is further away than that
    b         its bytes and the distance to `a`

The distances add up to at least all gaps that are read, for any order of requests: a request between two others pays
for the shorter of its two distances; the distance between the two, or the longest gap, was paid before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from lance_io._kernels import measure_ranges

if TYPE_CHECKING:
    from lance_io.io.reads import Request


def charge_apart(request: Request) -> int:
    """Upper bound of the bytes that a request adds to any others with which it may share reads."""
    return _bound(request, *_span(request), request.merging.gap_bytes_max)


class Charges:
    """Upper bounds for requests that are admitted together, charged one after the other."""

    def __init__(self) -> None:
        self._edges: dict[tuple[object, ...], list[int]] = {}  # starts and ends of ranges, by group, ascending

    def __call__(self, request: Request) -> int:
        """Upper bound of the bytes that one more request adds to those charged before."""
        start, end = _span(request)
        edges = self._edges.get(group := request.group)
        if edges is None:  # the usual case: the first of its group
            self._edges[group] = [start, end]
            return _bound(request, start, end, 0)
        distance = min(request.merging.gap_bytes_max, _distance(edges, start, end))
        insort(edges, start)
        insort(edges, end)
        return _bound(request, start, end, distance)


def _span(request: Request) -> tuple[int, int]:
    _, start, end, _ = measure_ranges(request.ranges.starts, request.ranges.ends, None)
    return start, end


def _distance(edges: list[int], start: int, end: int) -> int:
    """Bytes between a span and the nearest edge; 0 if an edge is inside. `edges` is not empty."""
    before, behind = bisect_right(edges, start), bisect_left(edges, end)
    if before != behind:
        return 0
    distances = ([start - edges[before - 1]] if before else []) + ([edges[behind] - end] if behind < len(edges) else [])
    return min(distances)


def _bound(request: Request, start: int, end: int, distance: int) -> int:
    """The smaller of two bounds: the ranges with a gap each, or the span from first to last and the distance."""
    return min(
        request.num_bytes + request.merging.gap_bytes_max * len(request.ranges.starts),
        end - start + distance,
    )
