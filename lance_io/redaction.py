"""Removes credentials from texts.

Errors (message, path, notes, and so their pickles), `repr`, logs and traces go through `hide_secrets`; metrics have no
texts of users. It removes the parts of a URL that may be credentials: users and passwords, and queries, which may be
signed. A store also passes its own credentials. Texts stay readable: host, path and names are kept.
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
KNOWN_LENGTH_MIN: Final = 4  # hiding a shorter text would make messages unreadable
_CONTAINER_SCHEMES: Final = frozenset(
    {"az", "abfs", "abfss", "wasb", "wasbs"}
)  # in `container@account` there is no user
_HARMLESS: Final = re.compile(r"(?:ddbTableName=[\w.-]*&?)+\Z")

# Texts may come from a server: repetitions inside a pattern are bounded, so that no search takes long.
# A user ends at the last `@` of the authority. Passwords that should be escaped may contain anything: the text after a
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
# Requests to token services, as forms or JSON, and signed tokens anywhere.
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
    """Hide users, passwords, tokens and signed queries of the URLs in a text, and known credentials.

    known  credentials to hide anywhere in the text, also URL-escaped
    """
    for form in sorted({form for secret in known for form in _forms(secret)}, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
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
    """The parts of a URL that `hide_secrets` hides; for `known`, as another library may show them in another form."""
    secrets: list[str] = []
    for match in _USER.finditer(url):
        user, _, password = match[0].partition("://")[2].removesuffix("@").partition(":")
        secrets += [password] if password else [user] if match[1] not in _CONTAINER_SCHEMES else []
    for match in _QUERY.finditer(url):
        secrets += [part.partition("=")[2] for part in match[2].split("&")]
    return [form for secret in secrets for form in (secret, unquote(secret)) if len(form) >= KNOWN_LENGTH_MIN]


def _forms(secret: str) -> tuple[str, ...]:
    return (secret, quote(secret, safe=""), quote(secret), quote_plus(secret)) if secret else ()


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match[1], match[0].partition("://")[2].removesuffix("@")
    has_container = scheme.lower() in _CONTAINER_SCHEMES or match.string.startswith(
        ("http://", "https://", "aws"), match.end()
    )
    return match[0] if has_container and ":" not in user else f"{scheme}://{HIDDEN}@"


def _without_query(match: re.Match[str]) -> str:
    return match[0] if _HARMLESS.match(match[2]) else f"{match[1]}?{HIDDEN}"


class _Hiding(logging.Filter):
    """Hides credentials in a log record, including its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = hide_secrets(record.getMessage()), None
        if record.exc_info and record.exc_info[0] is not None:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = hide_secrets(text)
            if record.exc_text != text:
                record.exc_info = None  # formatters of other packages (PySpark's) would write the exception itself
        return True


_hiding: Final = _Hiding()


def get_logger(name: str) -> logging.Logger:
    """The logger of a module, which hides credentials."""
    logger = logging.getLogger(name)
    logger.addFilter(_hiding)
    return logger


class _WithoutDetails(logging.Filter):
    """Cuts a log record after `failed:` in its first line. The rest may repeat an answer, and with it the request."""

    def filter(self, record: logging.LogRecord) -> bool:
        text, failed, _ = record.getMessage().partition("\n")[0].partition("failed:")
        record.msg, record.args = hide_secrets(f"{text}{failed.rstrip(':')}"), None
        record.exc_info = record.exc_text = None
        return True


_without_details: Final = _WithoutDetails()


def quiet_loggers(names: Iterable[str]) -> None:
    """Make the loggers of credential libraries omit answers of services. Idempotent.

    Callers still get failures as errors, without secrets.
    """
    for name in names:
        logging.getLogger(name).addFilter(_without_details)


def shown_values(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as texts, with credentials hidden."""
    return {name: hide_secrets(str(value)) for name, value in values.items()}
