"""The one function that every text passes which may hold a URL, before anybody sees it.

Errors (message, path, notes, and so their pickles), `repr`, logs and traces go through `hide_secrets`; metrics have no
texts of users. It takes out what of a URL may be a credential: users and passwords, and queries, which may be signed.
What a store knows of its own credentials it gives along. Texts stay readable: host, path and names are kept.
"""

from __future__ import annotations

import logging
import re
import traceback
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN: Final = "***"
KNOWN_LENGTH_MIN: Final = 4  # a shorter text would blot out half of a message
_PLACES: Final = frozenset({"az", "abfs", "abfss", "wasb", "wasbs"})  # `container@account` is no user
_HARMLESS: Final = re.compile(r"(?:ddbTableName=[\w.-]*&?)+\Z")

# Texts may be a server's: what is repeated within a search is bounded, so that none takes long.
# A user ends at the last `@` of the authority. Passwords that ought to be escaped may hold anything: what follows a
# colon is a password, unless it is a port.
_USER = re.compile(
    r"""([A-Za-z][A-Za-z0-9+.-]{0,30})://
    (?: [^\s/?#]*@
      | [^\s/?#@:\[]*:(?!:|\d+(?:[^\w%@.!$&*+=~-]|$))[^\n@]{0,512}@(?:[^\s/?#]*@)?
    )""",
    re.VERBOSE,
)
_QUERY = re.compile(r"""(://[^\s"'<>?]*)\?([^\s"<>]+?)(?=['")\],;:]{0,8}(?:\s|$|["<>]))""")
_FRAGMENT = re.compile(r"""(://[^\s"'<>#]*)\#([^\s"'<>]*=[^\s"'<>]*)""")
_PATH_QUERY = re.compile(r"""((?<=[\w/\]]))\?([\w.%~-]+=[^\s"<>]*?)(?=['")\],;:]{0,8}(?:\s|$|["<>]))""")
_PARAMETER = re.compile(
    r"""([?&](?:x-(?:amz|goog|ms)-[\w-]*|sig|signature|se|skoid|sktid|awsaccesskeyid|googleaccessid|[\w-]*token
    |[\w-]*secret|[\w-]*password|pwd|[\w-]*key)=)[^&\s'"<>]+""",
    re.IGNORECASE | re.VERBOSE,
)
# What services of tokens are asked with, as forms or JSON show it, and signed tokens wherever they stand.
_FORM = re.compile(
    r"""\b((?:WebIdentityToken|SAMLAssertion|client_secret|(?:client_)?assertion
    |(?:refresh|access|id|subject|actor)_token)
    ['"]?\s{0,2}[=:]\s{0,2}['"]?)[^&\s'",;]+""",
    re.IGNORECASE | re.VERBOSE,
)
_SIGNED_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")
_CONNECTION = re.compile(r"\b(AccountKey|SharedAccessKey|SharedAccessSignature)=[^;\s'\"]+", re.IGNORECASE)
_HEADER = re.compile(
    r"""(authorization['"]?\s*[:=]\s*b?['"]?)(?:bearer|basic|sharedkey|aws4-hmac-sha256)\b[^\n'"]*""", re.IGNORECASE
)
_TOKEN_HEADER = re.compile(
    r"""\b((?:x-amz-security-token|x-amz-[\w-]{0,40}customer-key|x-amz-sso_bearer_token|x-identity-header)['"]?
    \s{0,8}[:=]\s{0,8}b?['"]?)[^\s;,'"]+""",
    re.IGNORECASE | re.VERBOSE,
)
_MAY_BE_FORM: Final = ("webidentitytoken", "assertion", "client_secret", "_token")
_MAY_BE_TOKEN: Final = ("-security-token", "-customer-key", "-sso_bearer", "-identity-header")


def hide_secrets(text: str, known: Iterable[str] = ()) -> str:
    """A text without users, passwords, tokens and signed queries of the URLs in it, and without what is known.

    known  credentials, which are taken out wherever they stand, also as URLs escape them
    """
    for secret in sorted({form for one in known for form in _forms(one)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _FRAGMENT.sub(rf"\1#{HIDDEN}", _QUERY.sub(_without_query, _USER.sub(_without_user, text)))
    if "=" in text:
        text = _PATH_QUERY.sub(_without_query, text)
        text = _CONNECTION.sub(rf"\1={HIDDEN}", _PARAMETER.sub(rf"\1{HIDDEN}", text))
    if "eyJ" in text:
        text = _SIGNED_TOKEN.sub(HIDDEN, text)
    if any(name in text.lower() for name in _MAY_BE_FORM):
        text = _FORM.sub(rf"\1{HIDDEN}", text)
    if "-" in text and any(name in text.lower() for name in _MAY_BE_TOKEN):
        text = _TOKEN_HEADER.sub(rf"\1{HIDDEN}", text)
    return _HEADER.sub(rf"\1{HIDDEN}", text) if "uthorization" in text else text


def url_secrets(url: str) -> list[str]:
    """What of a URL `hide_secrets` takes out, to be known where another library shows it in another form."""
    found: list[str] = []
    for match in _USER.finditer(url):
        user, _, password = match[0].partition("://")[2].removesuffix("@").partition(":")
        found += [password] if password else [user] if match[1] not in _PLACES else []
    for match in _QUERY.finditer(url):
        found += [part.partition("=")[2] for part in match[2].split("&")]
    return [form for one in found for form in (one, unquote(one)) if len(form) >= KNOWN_LENGTH_MIN]


def _forms(secret: str) -> tuple[str, ...]:
    return (secret, quote(secret, safe=""), quote(secret), quote_plus(secret)) if secret else ()


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match[1], match[0].partition("://")[2].removesuffix("@")
    is_place = scheme.lower() in _PLACES or match.string.startswith(("http://", "https://", "aws"), match.end())
    return match[0] if is_place and ":" not in user else f"{scheme}://{HIDDEN}@"


def _without_query(match: re.Match[str]) -> str:
    return match[0] if _HARMLESS.match(match[2]) else f"{match[1]}?{HIDDEN}"


class _Hiding(logging.Filter):
    """Takes credentials out of a record, its traceback included."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = hide_secrets(record.getMessage()), None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = hide_secrets("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        return True


_hiding: Final = _Hiding()


def get_logger(name: str) -> logging.Logger:
    """The logger of a module; what goes through it shows no credentials."""
    logger = logging.getLogger(name)
    logger.addFilter(_hiding)
    return logger


class _WithoutDetails(logging.Filter):
    """Leaves of a record its first line up to `failed:`. The rest may hold what a service answered, and so was sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        text, failed, _ = record.getMessage().partition("\n")[0].partition("failed:")
        record.msg, record.args = hide_secrets(f"{text}{failed.rstrip(':')}"), None
        record.exc_info = record.exc_text = None
        return True


_without_details: Final = _WithoutDetails()


def quiet_loggers(names: Iterable[str]) -> None:
    """Let loggers of libraries that ask for credentials show no answers; more than once does nothing.

    What went wrong reaches the caller as an error, without secrets.
    """
    for name in names:
        logging.getLogger(name).addFilter(_without_details)


def shown_values(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as texts for people to see."""
    return {name: hide_secrets(str(value)) for name, value in values.items()}
