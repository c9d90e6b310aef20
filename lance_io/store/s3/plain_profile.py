"""Profiles of AWS's files that say something plain, static keys and a region, read without AWS's library.

Values of a profile that make the library look elsewhere, as for a role, a sign-in or a program, are left to it, and so
is whatever is not known here.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Final

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.store.s3.aws_profiles import read_files, section_of
from lance_io.store.s3.bucket_options import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.store.s3.bucket_options import S3Options

_NAME: Final = re.compile(r"[A-Za-z0-9._@+-]+")  # others are quoted in various ways
_KEY, _SECRET = "aws_access_key_id", "aws_secret_access_key"
_TOKENS: Final = ("aws_security_token", "aws_session_token")  # the first that is there counts
_PLAIN: Final = {  # values that say nothing of where keys come from
    *(_KEY, _SECRET, *_TOKENS, "aws_account_id", "region", "ca_bundle", "endpoint_url", "services", "output", "s3"),
    *("ignore_configured_endpoint_urls", "cli_pager", "cli_timestamp_format", "retry_mode", "max_attempts"),
}
_ELSEWHERE: Final = ("AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")  # asked before the files


@dataclass(frozen=True, slots=True)
class PlainProfile:
    """A profile that needs no library.

    values  of it, by name
    keys    what requests are signed with; None where AWS's library has to look for them
    """

    values: Mapping[str, str] = field(repr=False)
    keys: Keys | None = field(repr=False)


def find_plain(options: S3Options, environment: Mapping[str, str]) -> PlainProfile | None:
    """The profile that options and environment name; None where only AWS's library knows what it says."""
    named = {environment[name] for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE") if environment.get(name)}
    if options.profile is None and len(named) > 1:
        return None
    name = options.profile or next(iter(named), "default")
    try:
        config, credentials = read_files(environment)
    except UsageError:  # the library says what is wrong with them
        return None
    is_known = name == "default" or name in credentials or f"profile {name}" in config
    if not is_known or not _NAME.fullmatch(name) or {"default", "profile default"} <= config.keys():
        return None
    values = {**config.get(section_of(name, config), {}), **credentials.get(name, {})}
    if not values.keys() <= _PLAIN or not "".join(values.values()).isascii():
        return None
    given = options.provided is not None or options.role is not None
    if given or (options.profile is None and any(environment.get(one) for one in _ELSEWHERE)):
        return PlainProfile(values, None)
    own = credentials.get(name, {})
    return PlainProfile(values, _keys_in(own if _KEY in own else config.get(section_of(name, config), {})))


def _keys_in(section: Mapping[str, str]) -> Keys | None:
    token = next((section[one] for one in _TOKENS if one in section), None)
    key, secret = section.get(_KEY), section.get(_SECRET)
    return Keys(key, secret, token) if key and secret and token != "" else None
