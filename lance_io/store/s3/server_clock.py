"""The time that requests are signed with: this machine's, until a store says that it is too far from its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from lance_io.store.policies.download import parse_date

if TYPE_CHECKING:
    from collections.abc import Mapping

SKEWED: Final = "RequestTimeTooSkewed"
SKEW_S_MIN: Final = 60.0  # a refusal of a request that was signed closer to the server's time has another reason


class ServerClock:
    """The clock of one event loop's clients of a bucket."""

    def __init__(self) -> None:
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

        code, date  of the refusal: S3's code, the header
        signed_s    the time that the request was signed with
        """
        said = parse_date(date) if code == SKEWED else None
        if said is None or abs(said.timestamp() - signed_s) < SKEW_S_MIN:
            return False
        self._ahead_s = said.timestamp() - time.time()
        return True

    def corrects_client(self, response: Mapping[str, Any], signed_s: float) -> bool:
        """The same for what an exception of botocore's holds."""
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return self.corrects(str(response.get("Error", {}).get("Code", "")), headers.get("date", ""), signed_s)

    def sign_by(self, client: Any) -> None:
        """Have a client of aiobotocore's sign by this clock."""
        signer = client._request_signer
        make = signer.get_auth_instance

        async def get_auth_instance(*args: Any, **kwargs: Any) -> Any:
            auth = await make(*args, **kwargs)
            modify = getattr(auth, "_modify_request_before_signing", None)
            if self.is_off and modify is not None:

                def at_server_time(request: Any) -> None:
                    request.context["timestamp"] = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.now_s()))
                    modify(request)

                auth._modify_request_before_signing = at_server_time
            return auth

        signer.get_auth_instance = get_auth_instance


def signed_at_s(amz_date: str) -> float:
    """Seconds since 1970 of a header `x-amz-date`."""
    from calendar import timegm

    return float(timegm(time.strptime(amz_date, "%Y%m%dT%H%M%SZ")))
