"""Both libraries change one table on an object store in turn."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from tests.interop.alternation import Alternation, run

if TYPE_CHECKING:
    from tests.servers import S3Server


def test_both_libraries_change_a_table_in_turn(s3: S3Server, s3_uri: str) -> None:
    class OnService(Alternation):
        storage_options = s3.options()

        def place(self) -> str:
            return f"{s3_uri}/{uuid.uuid4().hex}"

    run(OnService, steps=10, examples=2)
