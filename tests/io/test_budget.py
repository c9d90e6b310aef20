"""The demand rule under every order of consumption: no deadlock, no more bytes than its bound, no running ahead."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.io.budget import Budget, Pool, Ticket


class Simulation:
    """Consumers that take tickets in their own order, a store that answers admitted ones in a drawn order."""

    def __init__(self, budget: Budget, sizes: list[int], rng: random.Random) -> None:
        self.budget = budget
        self.rng = rng
        self.tickets = [Ticket((number,), size, number) for number, size in enumerate(sizes)]
        self.admitted: list[Ticket] = []
        self.answered: set[int] = set()
        self.held_peak = 0
        for ticket in self.tickets:
            budget.submit(ticket)
        self.admit()

    def admit(self) -> None:
        self.admitted += self.budget.admit()
        self.held_peak = max(self.held_peak, self.budget.held_bytes)

    def answer_one(self) -> bool:
        """The store answers one admitted read; False when there is none."""
        open_ = [ticket for ticket in self.admitted if ticket.item not in self.answered]
        if open_:
            self.answered.add(self.rng.choice(open_).item)
        return bool(open_)

    def consume(self, orders: list[list[int]], cancel: set[int]) -> None:
        """Let the consumers run to their ends; asserts that they get there."""
        ahead = [list(reversed(order)) for order in orders]
        while any(ahead):
            consumer = self.rng.choice([order for order in ahead if order])
            ticket = self.tickets[consumer[-1]]
            if ticket.item in cancel:
                self.budget.release(ticket)
                consumer.pop()
            elif ticket.item in self.answered:
                self.budget.release(ticket)
                self.budget.release(ticket)
                consumer.pop()
            else:
                self.budget.demand(ticket)
                self.admit()
                assert ticket.state == "admitted"
                assert self.answer_one(), "everybody waits and nothing is in flight"
            self.admit()


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    capacity=st.sampled_from([1, 10, 60, 500]),
    refill=st.sampled_from([0, 20]),
    consumers=st.integers(1, 3),
    order=st.sampled_from(["priority", "reversed", "shuffled"]),
    cancelled=st.floats(0, 0.5),
    seed=st.integers(0, 1 << 16),
)
def test_never_deadlocks_and_keeps_the_bound(
    sizes: list[int], capacity: int, refill: int, consumers: int, order: str, cancelled: float, seed: int
) -> None:
    rng = random.Random(seed)
    budget = Budget(capacity, refill_bytes=refill)
    simulation = Simulation(budget, sizes, rng)
    numbers = list(range(len(sizes)))
    if order == "reversed":
        numbers.reverse()
    elif order == "shuffled":
        rng.shuffle(numbers)
    cancel = {number for number in numbers if rng.random() < cancelled}
    simulation.consume([numbers[consumer::consumers] for consumer in range(consumers)], cancel)
    assert budget.held_bytes == 0
    assert budget.admit() == []
    assert simulation.held_peak <= capacity + (consumers + 1) * max(sizes)


def test_a_stalled_consumer_does_not_fetch_everything() -> None:
    simulation = Simulation(Budget(10), [1] * 1000, random.Random(1))
    while simulation.answer_one():
        simulation.admit()
    assert len(simulation.answered) == 10


def test_one_larger_than_the_budget_goes_alone() -> None:
    budget = Budget(10)
    small, large = Ticket((1,), 1), Ticket((0,), 100)
    budget.submit(small)
    budget.submit(large)
    assert budget.admit() == [large]
    budget.release(large)
    assert budget.admit() == [small]


def test_the_demanded_overtakes() -> None:
    budget = Budget(10)
    tickets = [Ticket((number,), 6) for number in range(4)]
    for ticket in tickets:
        budget.submit(ticket)
    assert budget.admit() == tickets[:1]
    assert budget.demand(tickets[3])
    assert budget.demand(tickets[3])  # a second consumer of the same
    assert not budget.demand(tickets[0])
    assert budget.admit() == tickets[3:]
    assert budget.held_bytes == 12
    budget.release(tickets[0])
    assert budget.admit() == []
    budget.release(tickets[3])
    assert budget.admit() == tickets[1:2]


def test_readahead_goes_on_in_portions() -> None:
    budget = Budget(100, refill_bytes=30)
    tickets = [Ticket((number,), 10) for number in range(20)]
    for ticket in tickets:
        budget.submit(ticket)
    assert len(budget.admit()) == 10
    portions = []
    for ticket in tickets[:9]:
        budget.release(ticket)
        portions.append(len(budget.admit()))
    assert portions == [0, 0, 3, 0, 0, 3, 0, 0, 3]


def test_no_budget_admits_everything() -> None:
    budget = Budget(0)
    for number in range(5):
        budget.submit(Ticket((number,), 1 << 40))
    assert len(budget.admit()) == 5


def test_a_smaller_size_makes_room() -> None:
    budget = Budget(10)
    first, second = Ticket((0,), 9), Ticket((1,), 5)
    budget.submit(first)
    budget.submit(second)
    assert budget.admit() == [first]
    budget.resize(first, 5)
    assert budget.admit() == [second]
    assert budget.held_bytes == 10


def test_scans_share_a_pool() -> None:
    told: list[Any] = []
    pool = Pool(10)
    one, two = (Budget(8, pool=pool, on_room=lambda name=name: told.append(name)) for name in ("one", "two"))
    tickets = [Ticket((number,), 4) for number in range(4)]
    one.submit(tickets[0])
    one.submit(tickets[1])
    two.submit(tickets[2])
    two.submit(tickets[3])
    assert len(one.admit()) == 2
    assert two.admit() == [tickets[2]]  # over the pool's bound, but the only one of its scan
    assert (pool.avail_bytes, told) == (-2, [])
    one.release(tickets[0])
    assert told == ["two"]
    assert two.admit() == []
    one.release(tickets[1])
    assert told == ["two", "two"]
    assert two.admit() == [tickets[3]]
    two.release(tickets[2])
    two.release(tickets[3])
    assert pool.avail_bytes == 10


@pytest.mark.parametrize("state", ["waiting", "demanded"])
def test_the_released_are_never_admitted(state: str) -> None:
    budget = Budget(10)
    ticket = Ticket((0,), 5)
    budget.submit(ticket)
    if state == "demanded":
        budget.demand(ticket)
    budget.release(ticket)
    assert budget.admit() == []
    assert budget.held_bytes == 0
