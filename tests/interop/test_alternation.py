"""Both libraries change one table on local disk in turn."""

from __future__ import annotations

import pytest

from tests.interop.alternation import FILE_VERSIONS, Alternation, run


@pytest.mark.parametrize("version", FILE_VERSIONS)
def test_both_libraries_change_a_table_in_turn(version: str) -> None:
    class OfVersion(Alternation):
        file_versions = (version,)

    run(OfVersion, steps=15, examples=2)
