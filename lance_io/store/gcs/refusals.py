"""From what Google Cloud Storage answers to our errors.

A refusal has an HTTP status and, mostly, a JSON document `{"error": {"message": ..., "errors": [{"reason": ...}]}}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lance_io.store.cloud.refused_answers import Dialect, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.errors import LanceError

TEXT_MAX: Final = 2000  # of what a message shows of an answer
_DIALECT: Final = Dialect(
    throttled=frozenset({"rateLimitExceeded", "userRateLimitExceeded"}),  # told with 403, too
    gone=frozenset({404, 410}),  # 410: an upload that is over
)


def answer_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    key: str,
    operation: str,
    secrets: Iterable[str] = (),
) -> LanceError:
    """The error for an answer that is no success; `body` is a document, possibly empty or something else."""
    reason, message = _told(body)
    return refusal(
        _DIALECT,
        status,
        reason,
        message,
        headers=headers,
        key=key,
        operation=operation,
        secrets=secrets,
    )


def _told(body: bytes) -> tuple[str, str]:
    """Reason and message of a refusal."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        if isinstance(error, str):  # of the service for tokens
            return error[:TEXT_MAX], ""
        reasons = error.get("errors") or [{}]
        return str(reasons[0].get("reason", ""))[:TEXT_MAX], str(error.get("message", ""))[:TEXT_MAX]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "", " ".join(text.split())[:TEXT_MAX]
