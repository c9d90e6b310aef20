"""Whom to trust: TLS contexts by their settings, made once per process, since reading certificates takes 20 ms."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

from lance_io.records import dataclass

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

    Raises `NoTrust` for authorities that cannot be read.
    """
    return await asyncio.get_running_loop().run_in_executor(None, _context, settings)


class NoTrust(Exception):
    """The certificates that were named as authorities cannot be read."""


@cache
def _context(settings: TlsSettings) -> ssl.SSLContext:
    import ssl

    named = settings.authorities
    is_text = named is not None and named.lstrip().startswith("-----BEGIN")
    try:
        context = ssl.create_default_context(**{"cadata" if is_text else "cafile": named})  # type: ignore[arg-type]
    except OSError as error:  # that of ssl among them
        raise NoTrust(f"the certificates in {'the text given' if is_text else named}: {error}") from None
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
