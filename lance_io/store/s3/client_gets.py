"""Two more ways to send a GET to S3: signed by us over aiohttp, or by aiobotocore. Both make one attempt and no more.

The first knows proxies; the second everything that botocore knows (S3 Express, access points), at ten times the cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import LanceError
from lance_io.redaction import hide_secrets
from lance_io.store.cloud.client_options import SLOWEST_BYTES_PER_S
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.http.attempt import sent_around
from lance_io.store.policies.transport import TaskAttempt
from lance_io.store.s3.client_sends import counted_sends
from lance_io.store.s3.encryption import customer_arguments
from lance_io.store.s3.error_codes import ERROR_BODY_BYTES_MAX, answer_error, client_error, code_of
from lance_io.store.s3.loop_state import LoopState, load_library
from lance_io.store.s3.server_clock import signed_at_s
from lance_io.store.s3.site import Address, is_moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lance_io.store.policies.download import Download
    from lance_io.store.s3.bucket_options import S3Options

CHUNK_BYTES = 1 << 18


class SignedGets:
    """GETs over a bare HTTP session.

    again  called when a request goes out once more within an attempt
    """

    def __init__(self, options: S3Options, state: LoopState, again: Callable[[], None]) -> None:
        self._options = options
        self._state = state
        self._again = again

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> TaskAttempt:
        """See `GetTransport`."""
        return TaskAttempt(self._attempt(download), ended)

    async def _attempt(self, download: Download) -> None:
        """One attempt; a bucket that turns out to live in another region is asked there, once.

        So is one by whose clock a signature is too old, or not valid yet.
        """
        await load_library()
        if await self._once(download):
            self._again()
            if await self._once(download):
                raise sent_around(None, download.key, "get")

    async def close(self) -> None:
        """See `GetTransport`; the session is the state's."""

    async def _once(self, download: Download) -> bool:
        """One request; gives whether it has to be made again at once, since it has been learnt where or when."""
        import aiohttp
        from yarl import URL

        address = Address(self._options, self._state.region)
        host, path = address.host, address.path(download.key)
        url = f"{address.scheme}://{host}{path}"
        headers = {**download.headers(), **self._options.object_headers}
        signer = await self._state.signer(download.key)
        if signer is not None:
            headers = signer.headers(host, path, headers, self._state.clock.now_s())
        http = self._state.http()
        try:
            async with http.get(
                URL(url, encoded=True),
                headers=headers,
                allow_redirects=False,
                proxy=self._state.proxy,
                timeout=self._timeout(download),
            ) as answer:
                if answer.status in (200, 206):
                    download.begin(answer.status, answer.headers)
                    async for chunk in answer.content.iter_any():
                        download.add(chunk)
                    return False
                return await self._not_served(answer, download, headers.get("x-amz-date"))
        except LanceError:  # ours are OSErrors too; they say all that there is to say
            raise
        except aiohttp.ClientPayloadError as error:
            raise _broken(download, error, self._state.secrets) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _unanswered_error(download, error, self._state.secrets) from None

    async def _not_served(self, answer: Any, download: Download, signed: str | None) -> bool:
        moved_to: str | None = answer.headers.get("x-amz-bucket-region")
        if moved_to is not None and is_moved(answer.status, moved_to, self._options, self._state.region):
            self._state.region = moved_to
            return True
        if answer.status == 412 and download.received:
            download.object_changed()
        if answer.status == 416:
            download.no_such_range(answer.headers)
            return False
        body = await answer.content.read(ERROR_BODY_BYTES_MAX)
        date = answer.headers.get("date", "")
        if signed is not None and self._state.clock.corrects(code_of(body), date, signed_at_s(signed)):
            return True
        raise answer_error(
            answer.status, answer.headers, body, key=download.key, operation="get", secrets=self._state.secrets
        )

    def _timeout(self, download: Download) -> Any:
        import aiohttp

        rest = max(0, download.num_bytes - download.received)
        return aiohttp.ClientTimeout(
            total=self._options.request_timeout_s + rest / SLOWEST_BYTES_PER_S,
            sock_connect=self._options.connect_timeout_s,
            sock_read=self._options.stall_s,
        )


class ClientGets:
    """GETs through aiobotocore.

    again  called when it sends a request once more
    """

    def __init__(self, options: S3Options, state: LoopState, again: Callable[[], None]) -> None:
        self._options = options
        self._state = state
        self._again = again

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> TaskAttempt:
        """See `GetTransport`."""
        return TaskAttempt(self._attempt(download), ended)

    async def _attempt(self, download: Download) -> None:
        with counted_sends(self._again):
            await self._once(download)

    async def _once(self, download: Download) -> None:
        await load_library()
        import aiohttp
        from botocore.exceptions import BotoCoreError, ClientError
        from multidict import CIMultiDict

        asked = download.headers()
        arguments: dict[str, Any] = {"Bucket": self._options.bucket, "Key": download.key}
        if "range" in asked:
            arguments["Range"] = asked["range"]
        if "if-match" in asked:
            arguments["IfMatch"] = asked["if-match"]
        if self._options.read_headers:
            arguments["RequestPayer"] = "requester"
        arguments |= customer_arguments(self._options, "get_object")
        try:
            answer = await (await self._state.client()).get_object(**arguments)
            metadata = answer["ResponseMetadata"]
            async with answer["Body"] as body:
                download.begin(metadata["HTTPStatusCode"], CIMultiDict(metadata["HTTPHeaders"]))
                while chunk := await body.read(CHUNK_BYTES):
                    download.add(chunk)
        except ClientError as error:
            self._not_served(error, download)
        except LanceError:  # ours are OSErrors too; they say all that there is to say
            raise
        except aiohttp.ClientPayloadError as error:
            raise _broken(download, error, self._state.secrets) from None
        except BotoCoreError as error:
            raise client_error(error, key=download.key, operation="get", secrets=self._state.secrets) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _unanswered_error(download, error, self._state.secrets) from None

    async def close(self) -> None:
        """See `GetTransport`; the client is the state's."""

    def _not_served(self, error: Any, download: Download) -> None:
        from multidict import CIMultiDict

        metadata: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
        status = metadata.get("HTTPStatusCode")
        if status == 412 and download.received:
            download.object_changed()
        if status == 416:
            download.no_such_range(CIMultiDict(metadata.get("HTTPHeaders", {})))
            return
        raise client_error(error, key=download.key, operation="get", secrets=self._state.secrets) from None


def _broken(download: Download, error: Exception, secrets: Iterable[str]) -> Transient:
    text = hide_secrets(f"the answer broke off after {download.so_far} ({error})", secrets)
    return Transient(text, path=download.key, operation="get")


def _unanswered_error(download: Download, error: Exception, secrets: Iterable[str]) -> StoreFailure:
    """No answer, or none in time. A certificate that is not trusted stays so: that is not tried again."""
    import aiohttp

    told = hide_secrets(f"{type(error).__name__}: {error}", secrets)
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL)):
        return StoreFailure(f"cannot connect ({told})", path=download.key, operation="get")
    what = "no answer in time" if isinstance(error, TimeoutError) else f"no answer ({told})"
    return Transient(f"{what}, {download.so_far} are here", path=download.key, operation="get")
