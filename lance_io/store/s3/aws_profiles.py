"""Sections of AWS profile files.

    ~/.aws/config (AWS_CONFIG_FILE)                       [default], [profile NAME], [services NAME]
    ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE)      [NAME]

The credentials file takes precedence over the config file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Sections: TypeAlias = "dict[str, dict[str, str]]"


def section_of(name: str, config: Sections) -> str:
    """Section of a profile in the config file."""
    return "default" if name == "default" and "default" in config else f"profile {name}"


def read_files(environment: Mapping[str, str]) -> tuple[Sections, Sections]:
    """Sections of the config file and of the credentials file, by name.

    Raises `UsageError` for an invalid file.
    """
    config = _sections(environment.get("AWS_CONFIG_FILE") or "~/.aws/config")
    return config, _sections(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")


def _sections(path: str) -> Sections:
    """Sections of a profile file; empty if it does not exist or cannot be opened."""
    file = os.path.expanduser(path)
    if not os.path.isfile(file):
        return {}
    import configparser

    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read([file], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        # its lines may hold keys
        raise UsageError(f"{path}: expected an AWS profile file ({type(error).__name__})", path=path) from None
    return {" ".join(_words(name)): dict(parser.items(name)) for name in parser.sections()}


def _words(name: str) -> list[str]:
    """Words of a section's name, which may be quoted: `profile "my own"`."""
    first, _, rest = name.strip().partition(" ")
    rest = rest.strip()
    if len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "\"'":
        rest = rest[1:-1]
    return [first, rest] if rest else [first]
