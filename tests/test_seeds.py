"""A campaign's seed decides what is drawn, everywhere."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests import seeds
from tests.conftest import pytest_collection_modifyitems
from tests.interop.alternation import run

if TYPE_CHECKING:
    import pytest


def drawn(seed: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int], float]:
    """What a property, a state machine and a place with dice of its own draw."""
    monkeypatch.setattr(seeds, "SEED", seed)
    by_property: list[int] = []
    by_machine: list[int] = []

    @settings(max_examples=10, database=None)
    @given(st.integers())
    def test(number: int) -> None:
        by_property.append(number)

    class Machine(RuleBasedStateMachine):
        @rule(number=st.integers())
        def step(self, number: int) -> None:
            by_machine.append(number)

    place: dict[str, Any] = {"path": Path(__file__), "add_marker": lambda mark: None}
    items: list[Any] = [SimpleNamespace(nodeid="test", obj=test, **place), SimpleNamespace(nodeid="doctest", **place)]
    pytest_collection_modifyitems(items)
    test()
    run(Machine, steps=3, examples=2)
    return by_property, by_machine, random.Random(seeds.seed_of("a place")).random()


def test_the_same_seed_draws_the_same_and_another_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again, other = (drawn(seed, monkeypatch) for seed in ("20261124", "20261124", "20261125"))
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_without_a_seed_a_place_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "SEED", None)
    assert seeds.seed_of(7) == 7
    assert seeds.seeded(drawn) is drawn
