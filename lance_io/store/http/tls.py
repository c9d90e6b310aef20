"""TLS contexts by their settings, created once per process because reading certificates takes 20 ms."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

from lance_io.records import dataclass

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How server certificates are checked.

    verify       whether to check them at all
    authorities  trusted certificates: a file or PEM text; None for the system's
    """

    verify: bool = True
    authorities: str | None = None


async def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of these settings, created in a thread on first use.

    Raises `UnreadableCertificates` for unreadable authorities.
    """
    return await asyncio.get_running_loop().run_in_executor(None, _context, settings)


class UnreadableCertificates(Exception):
    """The authorities of `TlsSettings` cannot be read."""


@cache
def _context(settings: TlsSettings) -> ssl.SSLContext:
    import ssl

    named = settings.authorities
    is_text = named is not None and named.lstrip().startswith("-----BEGIN")
    try:
        context = ssl.create_default_context(**{"cadata" if is_text else "cafile": named})  # type: ignore[arg-type]
    except OSError as error:  # includes `ssl.SSLError`
        raise UnreadableCertificates(f"the certificates in {'the text given' if is_text else named}: {error}") from None
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
