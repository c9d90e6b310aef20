"""Maps error answers of Google Cloud Storage to our errors.

An error answer has an HTTP status and usually a JSON document
`{"error": {"message": ..., "errors": [{"reason": ...}]}}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lance_io.store.cloud.refused_answers import Dialect, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.errors import LanceError

TEXT_MAX: Final = 2000  # characters of an answer that a message shows
_DIALECT: Final = Dialect(
    throttled=frozenset({"rateLimitExceeded", "userRateLimitExceeded"}),  # also with status 403
    gone=frozenset({404, 410}),  # 410: the upload session has ended
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
    """The error for an unsuccessful answer; `body` may be a JSON document, empty or other text."""
    reason, message = _reason_and_message(body)
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


def _reason_and_message(body: bytes) -> tuple[str, str]:
    """Reason and message of an error answer."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        if isinstance(error, str):  # from the token service
            return error[:TEXT_MAX], ""
        reasons = error.get("errors") or [{}]
        return str(reasons[0].get("reason", ""))[:TEXT_MAX], str(error.get("message", ""))[:TEXT_MAX]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "", " ".join(text.split())[:TEXT_MAX]
