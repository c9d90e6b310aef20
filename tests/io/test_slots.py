"""Chains of slots: nobody gets more than there are, everybody who waits gets one, none is lost."""

from __future__ import annotations

import random
from functools import partial

import pytest

from lance_io.io.slots import SlotChain, Slots


class Owner:
    """Wants slots one by one; takes what it is granted unless it has gone."""

    def __init__(self, chain: SlotChain) -> None:
        self.chain = chain
        self.num_held = 0
        self.in_line = False
        self.is_gone = False

    def want(self) -> None:
        if not self.in_line and not self.is_gone:
            if self.chain.acquire(self):
                self.num_held += 1
            else:
                self.in_line = True

    def slot_granted(self) -> bool:
        self.in_line = False
        self.num_held += not self.is_gone
        return not self.is_gone

    def want_some(self, num_slots: int) -> None:
        if not self.in_line and not self.is_gone and self.chain.acquire_all(num_slots):
            self.num_held += num_slots

    def give_back(self) -> None:
        if self.num_held:
            self.num_held -= 1
            self.chain.release()

    def give_all_back(self) -> None:
        num_held, self.num_held = self.num_held, 0
        self.chain.release(num_held)


@pytest.mark.parametrize("seed", range(50))
def test_chains_keep_their_limits_and_lose_no_slot(seed: int) -> None:
    dice = random.Random(seed)
    store, scans, session = (Slots(dice.randint(1, 4)) for _ in range(3))
    limits = {slots: slots._limit for slots in (store, scans, session)}
    kinds = [(store,), (scans, store), (session, store), (session, scans, store)]
    owners = [Owner(SlotChain(*dice.choice(kinds), priority=dice.randint(0, 1))) for _ in range(6)]

    def check() -> None:
        for slots, limit in limits.items():
            held = sum(owner.num_held for owner in owners if slots in owner.chain.links)
            assert held <= slots.in_use <= limit
        assert store.in_use == sum(owner.num_held for owner in owners)

    for _ in range(200):
        owner = dice.choice(owners)
        want_two = partial(owner.want_some, 2)
        dice.choice([owner.want, owner.want, want_two, owner.give_back, owner.give_back, owner.give_all_back])()
        if dice.random() < 0.02:
            owner.is_gone = True
        check()
    while any(owner.num_held for owner in owners):
        dice.choice(owners).give_back()
        check()
    assert not any(owner.in_line for owner in owners if not owner.is_gone)  # who waited was served
    assert [slots.in_use for slots in limits] == [0, 0, 0]


def test_all_or_none() -> None:
    store, scans = Slots(4), Slots(2)
    both = SlotChain(scans, store)
    assert not both.acquire_all(3) and (scans.in_use, store.in_use) == (0, 0)
    assert store.acquire_all(3)
    assert not both.acquire_all(2) and (scans.in_use, store.in_use) == (0, 3)
    assert both.acquire_all(1) and (scans.in_use, store.in_use) == (1, 4)
    waiting = Owner(SlotChain(store))
    waiting.want()
    store.release(3)
    assert waiting.num_held == 1 and store.in_use == 2  # what comes free is first for who stands in line
    waiting.want()
    both.release()
    assert (waiting.num_held, scans.in_use, store.in_use) == (2, 0, 2)
