"""Runs several page computations in lock step, so that their byte ranges share I/O rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lance_io.spans import Fetched, Purpose, Ranges, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def together(steps: Sequence[Steps[T]]) -> Steps[list[T]]:
    """Run page computations in lock step: each round requests the ranges of all of them."""
    results: list[Any] = [None] * len(steps)
    try:
        live: list[tuple[int, Steps[T], Ranges]] = []
        for i, step in enumerate(steps):
            try:
                live.append((i, step, next(step)))
            except StopIteration as done:
                results[i] = done.value
        while live:
            if len(live) == 1:  # fast path: one page needs no merging
                i, step, wanted = live[0]
                fetched = yield wanted
                live = _send(step, i, fetched, results)
                continue
            fetched = yield merge_ranges([wanted for _, _, wanted in live])
            next_live: list[tuple[int, Steps[T], Ranges]] = []
            position = 0
            for i, step, wanted in live:
                end = position + len(wanted.starts)
                next_live += _send(step, i, Fetched(fetched.buffer, fetched.offsets[position:end]), results)
                position = end
            live = next_live
        return results
    finally:
        for step in steps:
            step.close()


def _send(step: Steps[T], index: int, fetched: Fetched, results: list[Any]) -> list[tuple[int, Steps[T], Ranges]]:
    try:
        return [(index, step, step.send(fetched))]
    except StopIteration as done:
        results[index] = done.value
        return []


def merge_ranges(wanted: list[Ranges]) -> Ranges:
    """Concatenate the ranges."""
    if len(wanted) == 1:
        return wanted[0]
    starts = np.concatenate([w.starts for w in wanted])
    ends = np.concatenate([w.ends for w in wanted])
    purpose: Purpose = "data" if any(w.purpose == "data" for w in wanted) else wanted[0].purpose
    return Ranges(starts, ends, purpose, any(w.keep for w in wanted))


def fetch(ranges: Ranges) -> Steps[Fetched]:
    """Fetch ranges in one round."""
    return (yield ranges)
