"""AWS's files of profiles, as sections.

    ~/.aws/config (AWS_CONFIG_FILE)                       [default], [profile NAME], [services NAME]
    ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE)      [NAME]

What the file of credentials says stands before the other one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Sections: TypeAlias = "dict[str, dict[str, str]]"


def section_of(name: str, config: Sections) -> str:
    """The section that a profile has in the file of configurations."""
    return "default" if name == "default" and "default" in config else f"profile {name}"


def read_files(environment: Mapping[str, str]) -> tuple[Sections, Sections]:
    """The sections of both files, by their names: configurations, credentials.

    Raises `UsageError` for a file that is none of profiles.
    """
    config = _sections(environment.get("AWS_CONFIG_FILE") or "~/.aws/config")
    return config, _sections(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")


def _sections(path: str) -> Sections:
    """The sections of a file of AWS's; none where it is not there or cannot be opened."""
    file = os.path.expanduser(path)
    if not os.path.isfile(file):
        return {}
    import configparser

    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read([file], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        # its lines may hold keys
        raise UsageError(f"{path}: expected a file of profiles of AWS's ({type(error).__name__})", path=path) from None
    return {" ".join(_words(name)): dict(parser.items(name)) for name in parser.sections()}


def _words(name: str) -> list[str]:
    """A section's name, which may be quoted: `profile "of mine"`."""
    first, _, rest = name.strip().partition(" ")
    rest = rest.strip()
    if len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "\"'":
        rest = rest[1:-1]
    return [first, rest] if rest else [first]
