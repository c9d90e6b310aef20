"""Simple AWS profiles (static keys, region), read without AWS's library.

AWS's library handles all other profiles: those with another source of keys (a role, a sign-in, a program), and those
with unknown settings.
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

_NAME: Final = re.compile(r"[A-Za-z0-9._@+-]+")  # the library quotes other names in various ways
_KEY, _SECRET = "aws_access_key_id", "aws_secret_access_key"
_TOKENS: Final = ("aws_security_token", "aws_session_token")  # the first one present applies
_PLAIN: Final = {  # settings that do not affect the source of keys
    *(_KEY, _SECRET, *_TOKENS, "aws_account_id", "region", "ca_bundle", "endpoint_url", "services", "output", "s3"),
    *("ignore_configured_endpoint_urls", "cli_pager", "cli_timestamp_format", "retry_mode", "max_attempts"),
}
# Variables that take precedence over the keys of the files.
_OVERRIDES: Final = ("AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")


@dataclass(frozen=True, slots=True)
class PlainProfile:
    """A profile that this module can read.

    values  settings by name
    keys    signing keys; None if AWS's library must search for them
    """

    values: Mapping[str, str] = field(repr=False)
    keys: Keys | None = field(repr=False)


def find_plain(options: S3Options, environment: Mapping[str, str]) -> PlainProfile | None:
    """The profile named by options and environment; None if only AWS's library can interpret it."""
    profile_names = {environment[name] for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE") if environment.get(name)}
    if options.profile is None and len(profile_names) > 1:
        return None
    name = options.profile or next(iter(profile_names), "default")
    try:
        config, credentials = read_files(environment)
    except UsageError:  # the library reports the problem
        return None
    exists = name == "default" or name in credentials or f"profile {name}" in config
    is_ambiguous = {"default", "profile default"} <= config.keys()  # two sections of one profile
    if not exists or not _NAME.fullmatch(name) or is_ambiguous:
        return None
    values = {**config.get(section_of(name, config), {}), **credentials.get(name, {})}
    if not values.keys() <= _PLAIN or not "".join(values.values()).isascii():
        return None
    overrides_keys = options.provided is not None or options.role is not None
    if overrides_keys or (options.profile is None and any(environment.get(variable) for variable in _OVERRIDES)):
        return PlainProfile(values, None)
    credentials_section = credentials.get(name, {})
    return PlainProfile(
        values,
        _keys_in(credentials_section if _KEY in credentials_section else config.get(section_of(name, config), {})),
    )


def _keys_in(section: Mapping[str, str]) -> Keys | None:
    token = next((section[setting] for setting in _TOKENS if setting in section), None)
    key, secret = section.get(_KEY), section.get(_SECRET)
    return Keys(key, secret, token) if key and secret and token != "" else None
