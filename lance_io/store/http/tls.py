"""Whom to trust: TLS contexts by their settings, made once per process, since reading certificates takes 20 ms."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What a server's certificate has to be.

    verify       whether it is looked at
    authorities  a file with the certificates to trust, or these as PEM text; None for the usual ones
    """

    verify: bool = True
    authorities: str | None = None


async def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of these settings, made in a thread where it was not made yet.

    Raises `OSError` for a file that cannot be read, `ssl.SSLError` for what is no certificate.
    """
    return await asyncio.get_running_loop().run_in_executor(None, _context, settings)


@cache
def _context(settings: TlsSettings) -> ssl.SSLContext:
    import ssl

    named = settings.authorities
    if named is not None and named.lstrip().startswith("-----BEGIN"):
        context = ssl.create_default_context(cadata=named)
    else:
        context = ssl.create_default_context(cafile=named)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
