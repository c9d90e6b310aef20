"""The time that requests are signed with: this machine's, until a service says that it is too far from its own.

Clients of aiobotocore's follow a clock by their events: what they sign, and what they do with a refusal. Events of a
session are those of all clients that are made of it, such as those of STS that find credentials.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from lance_io.store.policies.download import parse_date

if TYPE_CHECKING:
    from collections.abc import Mapping

SKEWED: Final = frozenset({"RequestTimeTooSkewed"})
# Of services beside S3. The last ones have other reasons, too: what the server's time is decides.
SKEWED_ELSEWHERE: Final = SKEWED | {
    "RequestExpired", "RequestInTheFuture", "AuthFailure", "InvalidSignatureException", "SignatureDoesNotMatch",
}  # fmt: skip
_SIGNED_AGAIN: Final = "lance_io_signed_again"
SKEW_S_MIN: Final = 60.0  # a refusal of a request that was signed closer to the server's time has another reason


class ServerClock:
    """The clock of one event loop's clients of a service.

    codes  of refusals that may have a wrong time as their reason
    """

    def __init__(self, codes: frozenset[str] = SKEWED) -> None:
        self._codes = codes
        self._ahead_s = 0.0

    @property
    def is_off(self) -> bool:
        """Whether this machine's clock is known to be wrong."""
        return self._ahead_s != 0.0

    def now_s(self) -> float:
        """Seconds since 1970, for the next signature."""
        return time.time() + self._ahead_s

    def corrects(self, code: str, date: str, signed_s: float) -> bool:
        """Take the server's time from a refusal; whether the request is to be signed again.

        code, date  of the refusal: the service's code, the header
        signed_s    the time that the request was signed with
        """
        said = parse_date(date) if code in self._codes else None
        if said is None or abs(said.timestamp() - signed_s) < SKEW_S_MIN:
            return False
        self._ahead_s = said.timestamp() - time.time()
        return True

    def follow(self, events: Any, service: str) -> None:
        """Have clients of a service sign by this clock, and once more what is refused for the time of its signature.

        events  of a client or session of aiobotocore's
        """
        events.register(f"before-sign.{service}", self._sign_by)
        events.register(f"needs-retry.{service}", self._is_due_again)

    def follow_expirations(self, events: Any, service: str) -> None:
        """Take the ends of credentials that a service gives by its clock, which is not this machine's."""
        events.register(f"after-call.{service}", _by_our_time)

    def _is_due_again(self, response: Any, request_dict: Mapping[str, Any], **_: Any) -> float | None:
        """The pause before a request is made again; None: it is not, for this reason."""
        context = request_dict["context"]
        signed = context.get("timestamp")
        if response is None or signed is None or _SIGNED_AGAIN in context:
            return None
        code, date = str(response[1].get("Error", {}).get("Code", "")), _date_of(response[1])
        if not self.corrects(code.rpartition("#")[2], date, signed_at_s(signed)):
            return None
        context[_SIGNED_AGAIN] = True
        return 0

    def _sign_by(self, request_signer: Any, **_: Any) -> None:
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
    """The header of an answer as botocore reads it."""
    found: str = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    return found


def _by_our_time(parsed: Mapping[str, Any], **_: Any) -> None:
    """Move the end of credentials by as much as the clocks differ, if that is a lot."""
    from datetime import UTC, datetime

    said, found = parse_date(_date_of(parsed)), parsed.get("Credentials")
    if said is None or not isinstance(found, dict) or not isinstance(found.get("Expiration"), datetime):
        return
    behind = datetime.now(UTC) - said
    if abs(behind.total_seconds()) >= SKEW_S_MIN:
        found["Expiration"] += behind


def signed_at_s(amz_date: str) -> float:
    """Seconds since 1970 of a header `x-amz-date`."""
    from calendar import timegm

    return float(timegm(time.strptime(amz_date, "%Y%m%dT%H%M%SZ")))
