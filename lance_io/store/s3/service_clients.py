"""Settings of aiobotocore's clients of STS and DynamoDB, which connect like the client of S3."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lance_io.store.cloud.client_options import certificates_file

if TYPE_CHECKING:
    from lance_io.store.s3.bucket_options import S3Options

LOGGERS: Final = ("aiobotocore.credentials", "aiobotocore.utils", "botocore.credentials", "botocore.utils")
ATTEMPTS: Final = 5  # limit for requests that aiobotocore retries


@cache
def once_only_session() -> type:
    """aiobotocore's HTTP session, sending each request once and only to the store.

    Plain aiohttp resends a PUT after a broken connection. The second PUT would meet the result of the first, so that a
    create-if-absent that won would report a loss. aiohttp also follows redirects anywhere, with the data and with
    headers that hold credentials, and may turn a PUT into a GET, whose success would count as that of the PUT. botocore
    itself follows a bucket to its region.
    """
    from aiobotocore.httpsession import AIOHTTPSession

    class OnceOnlySession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False
            if "_request" not in vars(session):  # bypasses `__setattr__`, which warns of unknown names
                vars(session)["_request"] = partial(session._request, allow_redirects=False)
            return session

    return OnceOnlySession


def service_config(options: S3Options, service: str, endpoint: str | None, attempts_max: int) -> Any:
    """The configuration of a client of a service other than S3.

    endpoint  of the service; None for Amazon's
    """
    from aiobotocore.config import AioConfig

    config: dict[str, Any] = {
        "connect_timeout": options.connect_timeout_s,
        "read_timeout": options.silence_s,
        "retries": {"mode": "standard", "total_max_attempts": attempts_max},
        "user_agent_extra": options.user_agent,
        "http_session_cls": once_only_session(),
    }
    if options.proxy:
        host = urlsplit(endpoint or f"https://{service}.{options.region or 'us-east-1'}.amazonaws.com").hostname or ""
        proxy = options.proxy_for(host)
        config["proxies"] = {"http": proxy, "https": proxy}  # None also disables the environment's proxy
    return AioConfig(**config)


def trusted_by(options: S3Options) -> str | bool | None:
    """Certificates trusted by the options: a file, False for any, None for the default."""
    return certificates_file(options.ca_certificates) if options.verify else False
