"""What the options say of clients of aiobotocore's: those of STS and DynamoDB reach these as S3's client reaches S3."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lance_io.store.cloud.client_options import certificates_file

if TYPE_CHECKING:
    from lance_io.store.s3.bucket_options import S3Options

LOGGERS: Final = ("aiobotocore.credentials", "aiobotocore.utils", "botocore.credentials", "botocore.utils")
ATTEMPTS: Final = 5  # at most, of requests that aiobotocore repeats


@cache
def once_only_session() -> type:
    """aiobotocore's HTTP session, which sends a request once, and to the store.

    aiohttp by itself repeats a PUT whose connection broke: it would meet the first one's result, so that a
    create-if-absent that won would be told that it lost. And it follows redirections, with the data and with headers
    that hold credentials, wherever they lead; of a PUT it may make a GET, whose success would be taken for that of the
    PUT. botocore itself goes to the region of a bucket.
    """
    from aiobotocore.httpsession import AIOHTTPSession

    class OnceOnlySession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False
            if "_request" not in vars(session):  # past `__setattr__`, which warns of names that it does not know
                vars(session)["_request"] = partial(session._request, allow_redirects=False)
            return session

    return OnceOnlySession


def service_config(options: S3Options, service: str, endpoint: str | None, attempts_max: int) -> Any:
    """The configuration of a client of another service than S3.

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
        config["proxies"] = {"http": proxy, "https": proxy}  # with None: not even that of the environment
    return AioConfig(**config)


def trusted_by(options: S3Options) -> str | bool | None:
    """Certificates that the options trust: a file, False for any, None where they say nothing."""
    return certificates_file(options.ca_certificates) if options.verify else False
