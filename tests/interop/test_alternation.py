"""Both libraries change one table on local disk in turn."""

from __future__ import annotations

from tests.interop.alternation import Alternation, run


def test_both_libraries_change_a_table_in_turn() -> None:
    run(Alternation, steps=15, examples=5)
