"""A task of a build in several processes; this module loads fast."""

from __future__ import annotations

import pickle

import lance_io


def build_part(uri: str, fragment_id: int, models: bytes, kind: str) -> bytes:
    """A task: a segment over one fragment, with models that all tasks share."""
    segment = lance_io.dataset(uri).create_index_uncommitted(
        "v", kind, fragment_ids=[fragment_id], **pickle.loads(models)
    )
    return pickle.dumps(segment)
