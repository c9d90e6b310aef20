"""Endpoints of AWS services, searched in the same order as AWS's own tools do.

    the storage option
    AWS_ENDPOINT_URL_S3 (_DYNAMODB, _STS)
    AWS_ENDPOINT_URL
    AWS_ENDPOINT                                            S3 only: pylance reads it
    the profile: its `services` section, then its `endpoint_url`

The first one that is set applies. AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, or `ignore_configured_endpoint_urls` as an
option or in the profile, disables all but the option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from lance_io.store.s3.aws_profiles import read_files, section_of
from lance_io.store.storage_options import switch

if TYPE_CHECKING:
    from collections.abc import Mapping

Service = Literal["s3", "dynamodb", "sts"]
_IGNORE: Final = "ignore_configured_endpoint_urls"
_URL: Final = "endpoint_url"


class Endpoints:
    """Endpoints configured by variables and profile.

    ignores  whether they are ignored
    """

    def __init__(self, ignore: str | None, environment: Mapping[str, str], profile: str | None) -> None:
        """Read the profile files, if there are any.

        ignore   text of the option or variable; None if unset
        profile  name of an AWS profile; None for the default one
        Raises `UsageError` for invalid profile files, and for an invalid `ignore`.
        """
        self._environment = environment
        self._profile = profile or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
        self._values, self._of_services = _read_profile(environment, self._profile)
        self.ignores = switch(_IGNORE, ignore or self._values.get(_IGNORE) or "false")

    def find(self, service: Service) -> str | None:
        """The endpoint of a service; None for Amazon's own."""
        endpoint = self.find_with_origin(service)
        return None if endpoint is None else endpoint[0]

    def find_with_origin(self, service: Service) -> tuple[str, str] | None:
        """The endpoint, and the variable or the part of the profile that sets it."""
        if self.ignores:
            return None
        general = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT") if service == "s3" else ("AWS_ENDPOINT_URL",)
        for name in (f"AWS_ENDPOINT_URL_{service.upper()}", *general):
            if value := self._environment.get(name):
                return value, f"variable {name}"
        if value := self._of_services.get(service):
            return value, f"services {self._values['services']} of profile {self._profile}"
        return (value, f"profile {self._profile}") if (value := self._values.get(_URL)) else None


def _read_profile(environment: Mapping[str, str], name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of a profile, and the endpoints in its `services` section.

    Reads both files like botocore: the credentials file takes precedence over the config file.
    """
    config, credentials = read_files(environment)
    values = {**config.get(section_of(name, config), {}), **credentials.get(name, {})}
    services = config.get(f"services {values['services']}", {}) if values.get("services") else {}
    endpoints = {service: url for service, text in services.items() if (url := _members(text).get(_URL))}
    return values, endpoints


def _members(text: str) -> dict[str, str]:
    """Nested settings, one `name = value` per line."""
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line]
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
