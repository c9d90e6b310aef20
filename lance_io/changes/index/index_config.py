"""The public value that configures an index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class IndexConfig:
    """The kind of an index and its parameters, for `create_scalar_index`.

    Args:
        index_type: "btree" (parameter `zone_size`), "bitmap", "ngram", "zonemap" (`rows_per_zone`), "bloomfilter"
            (`number_of_items`, `probability`), or "json" (`target_index_type`: "btree" or "bitmap", and `path`).
        parameters: Its parameters.
    """

    index_type: str
    parameters: dict[str, Any] = field(default_factory=dict)
