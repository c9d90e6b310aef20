"""What requests are charged before their reads are planned: never less than what the reads hold. Pure arithmetic.

How far a request shares reads with others is known once it is clear which are admitted, and whether it is admitted
depends on what it holds. So requests are charged one after the other, each for what it adds to those before it:

    file      ----aaaa------bb-------------------------------------cccc-----
    a         its bytes
    c         its bytes and the longest gap, as `a` is further away than that
    b         its bytes and the way to `a`

The ways add up to all gaps that are read, in whatever order the requests come: one that falls between two others pays
for the shorter of its two ways, and the way between these, or the longest gap, was paid for before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from lance_io._kernels import measure_ranges

if TYPE_CHECKING:
    from lance_io.io.reads import Request


def charge_apart(request: Request) -> int:
    """Upper bound in bytes of what a request adds to any others that its reads may be merged with."""
    return _bound(request, *_span(request), request.merging.gap_bytes_max)


class Charges:
    """Upper bounds for requests that are admitted together, charged one after the other."""

    def __init__(self) -> None:
        self._edges: dict[tuple[object, ...], list[int]] = {}  # where ranges begin or end, by group, ascending

    def __call__(self, request: Request) -> int:
        """Upper bound in bytes of what one more request adds to those that were charged before."""
        start, end = _span(request)
        edges = self._edges.get(group := request.group)
        if edges is None:  # the usual case: the first of its group
            self._edges[group] = [start, end]
            return _bound(request, start, end, 0)
        way_bytes = min(request.merging.gap_bytes_max, _way(edges, start, end))
        insort(edges, start)
        insort(edges, end)
        return _bound(request, start, end, way_bytes)


def _span(request: Request) -> tuple[int, int]:
    _, start, end, _ = measure_ranges(request.ranges.starts, request.ranges.ends, None)
    return start, end


def _way(edges: list[int], start: int, end: int) -> int:
    """Bytes between a span and the nearest edge, of which there are some; 0 if there is one inside."""
    before, behind = bisect_right(edges, start), bisect_left(edges, end)
    if before != behind:
        return 0
    ways = ([start - edges[before - 1]] if before else []) + ([edges[behind] - end] if behind < len(edges) else [])
    return min(ways)


def _bound(request: Request, start: int, end: int, way_bytes: int) -> int:
    """Each range brings its bytes and a gap; or all of them what lies between the outermost, and one way to others."""
    return min(
        request.num_bytes + request.merging.gap_bytes_max * len(request.ranges.starts),
        end - start + way_bytes,
    )
