"""Thinned products have every value of each dimension, and their parts are together the whole."""

from __future__ import annotations

from itertools import chain, product

import pytest

from tests import products
from tests.products import thinned

DIMENSIONS = ("abcde", range(3), (None, True))


@pytest.mark.parametrize("share", [1, 2, 3])
def test_each_part_has_every_value_and_together_they_are_all(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "ALL", False)
    whole = [*product(*DIMENSIONS)]
    parts = [thinned(*DIMENSIONS, share=share, first=first) for first in range(share)]
    assert sorted(map(str, chain(*parts))) == sorted(map(str, whole))
    for part in parts:
        assert [{*values} for values in zip(*part, strict=True)] == [{*values} for values in DIMENSIONS]
        assert len(whole) // share - 1 <= len(part) <= len(whole) // share + 1
    monkeypatch.setattr(products, "ALL", True)
    assert thinned(*DIMENSIONS, share=share) == whole
