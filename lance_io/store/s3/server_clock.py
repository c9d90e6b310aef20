"""The time for signatures: this machine's clock, until a service reports that it is too far off.

aiobotocore's clients follow a clock through their events, which sign requests and handle refusals. Events of a session
also apply to all its clients, such as those of STS that fetch credentials.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from lance_io.store.policies.download import parse_date

if TYPE_CHECKING:
    from collections.abc import Mapping

SKEWED: Final = frozenset({"RequestTimeTooSkewed"})
# For services other than S3. The last ones also have other causes: only the server's time shows a skew.
SKEWED_ELSEWHERE: Final = SKEWED | {
    "RequestExpired", "RequestInTheFuture", "AuthFailure", "InvalidSignatureException", "SignatureDoesNotMatch",
}  # fmt: skip
_SIGNED_AGAIN: Final = "lance_io_signed_again"
SKEW_S_MIN: Final = 60.0  # a smaller skew is not the reason of a refusal


class ServerClock:
    """The clock of one event loop's clients of a service.

    codes  error codes that a wrong time may cause
    """

    def __init__(self, codes: frozenset[str] = SKEWED) -> None:
        self._codes = codes
        self._ahead_s = 0.0

    @property
    def is_off(self) -> bool:
        """Whether this machine's clock has proved wrong."""
        return self._ahead_s != 0.0

    def now_s(self) -> float:
        """Seconds since 1970 by the server's clock, for the next signature."""
        return time.time() + self._ahead_s

    def adopt_server_time(self, code: str, date: str, signed_s: float) -> bool:
        """Take the server's time from an error answer; returns whether to sign the request again.

        code, date  error code and `date` header of the answer
        signed_s    time of the request's signature
        """
        server_time = parse_date(date) if code in self._codes else None
        if server_time is None or abs(server_time.timestamp() - signed_s) < SKEW_S_MIN:
            return False
        self._ahead_s = server_time.timestamp() - time.time()
        return True

    def follow(self, events: Any, service: str) -> None:
        """Make clients of a service sign by this clock, and resend requests that are refused for their time, once.

        events  of an aiobotocore client or session
        """
        events.register(f"before-sign.{service}", self._patch_signer)
        events.register(f"needs-retry.{service}", self._retry_pause)

    def follow_expirations(self, events: Any, service: str) -> None:
        """Convert expiries of a service's credentials from its clock to this machine's."""
        events.register(f"after-call.{service}", _shift_expiry)

    def _retry_pause(self, response: Any, request_dict: Mapping[str, Any], **_: Any) -> float | None:
        """The pause before a retry with the corrected time; None for no such retry."""
        context = request_dict["context"]
        signed = context.get("timestamp")
        if response is None or signed is None or _SIGNED_AGAIN in context:
            return None
        code, date = str(response[1].get("Error", {}).get("Code", "")), _date_of(response[1])
        if not self.adopt_server_time(code.rpartition("#")[2], date, signed_at_s(signed)):
            return None
        context[_SIGNED_AGAIN] = True
        return 0

    def _patch_signer(self, request_signer: Any, **_: Any) -> None:
        signer = request_signer
        if not self.is_off or "get_auth_instance" in vars(signer):
            return
        make = signer.get_auth_instance

        async def get_auth_instance(*args: Any, **kwargs: Any) -> Any:
            auth = await make(*args, **kwargs)
            modify = getattr(auth, "_modify_request_before_signing", None)
            if modify is not None:

                def at_server_time(request: Any) -> None:
                    request.context["timestamp"] = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.now_s()))
                    modify(request)

                auth._modify_request_before_signing = at_server_time
            return auth

        signer.get_auth_instance = get_auth_instance


def _date_of(parsed: Mapping[str, Any]) -> str:
    """The `date` header of an answer parsed by botocore."""
    date: str = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    return date


def _shift_expiry(parsed: Mapping[str, Any], **_: Any) -> None:
    """Shift the expiry of credentials by the difference of the clocks, if that is large."""
    from datetime import UTC, datetime

    server_time, credentials = parse_date(_date_of(parsed)), parsed.get("Credentials")
    if server_time is None or not isinstance(credentials, dict):
        return
    behind = datetime.now(UTC) - server_time
    if isinstance(credentials.get("Expiration"), datetime) and abs(behind.total_seconds()) >= SKEW_S_MIN:
        credentials["Expiration"] += behind


def signed_at_s(amz_date: str) -> float:
    """Seconds since 1970 of an `x-amz-date` header."""
    from calendar import timegm

    return float(timegm(time.strptime(amz_date, "%Y%m%dT%H%M%SZ")))
