"""GETs of S3 Express through aiobotocore, which opens its sessions; one attempt each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import LanceError
from lance_io.redaction import hide_secrets
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.policies.transport import TaskAttempt
from lance_io.store.s3.client_sends import counted_sends
from lance_io.store.s3.encryption import customer_arguments
from lance_io.store.s3.error_codes import client_error
from lance_io.store.s3.loop_state import LoopState, load_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lance_io.store.policies.download import Download
    from lance_io.store.s3.bucket_options import S3Options

CHUNK_BYTES = 1 << 18


class ClientGets:
    """GETs through aiobotocore.

    on_resend  called when it sends a request again
    """

    def __init__(self, options: S3Options, state: LoopState, on_resend: Callable[[], None]) -> None:
        self._options = options
        self._state = state
        self._on_resend = on_resend

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> TaskAttempt:
        """See `GetTransport`."""
        return TaskAttempt(self._attempt(download), ended)

    async def _attempt(self, download: Download) -> None:
        with counted_sends(self._on_resend):
            await self._once(download)

    async def _once(self, download: Download) -> None:
        await load_library()
        import aiohttp
        from botocore.exceptions import BotoCoreError, ClientError
        from multidict import CIMultiDict

        headers = download.headers()
        arguments: dict[str, Any] = {"Bucket": self._options.bucket, "Key": download.key}
        if "range" in headers:
            arguments["Range"] = headers["range"]
        if "if-match" in headers:
            arguments["IfMatch"] = headers["if-match"]
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
            self._on_failed_get(error, download)
        except LanceError:  # our errors, some of which are also `OSError`
            raise
        except aiohttp.ClientPayloadError as error:
            raise _truncated_error(download, error, self._state.secrets) from None
        except BotoCoreError as error:
            raise client_error(error, key=download.key, operation="get", secrets=self._state.secrets) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _unanswered_error(download, error, self._state.secrets) from None

    async def close(self) -> None:
        """See `GetTransport`; the state closes the client."""

    def _on_failed_get(self, error: Any, download: Download) -> None:
        from multidict import CIMultiDict

        metadata: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
        status = metadata.get("HTTPStatusCode")
        if status == 412 and download.received:
            download.object_changed()
        if status == 416:
            download.no_such_range(CIMultiDict(metadata.get("HTTPHeaders", {})))
            return
        raise client_error(error, key=download.key, operation="get", secrets=self._state.secrets) from None


def _truncated_error(download: Download, error: Exception, secrets: Iterable[str]) -> Transient:
    text = hide_secrets(f"the answer broke off after {download.so_far} ({error})", secrets)
    return Transient(text, path=download.key, operation="get")


def _unanswered_error(download: Download, error: Exception, secrets: Iterable[str]) -> StoreFailure:
    """No answer, or none in time. An untrusted certificate stays so: it is not `Transient`."""
    import aiohttp

    reason = hide_secrets(f"{type(error).__name__}: {error}", secrets)
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL)):
        return StoreFailure(f"cannot connect ({reason})", path=download.key, operation="get")
    text = "no answer in time" if isinstance(error, TimeoutError) else f"no answer ({reason})"
    return Transient(f"{text}, {download.so_far} received", path=download.key, operation="get")
