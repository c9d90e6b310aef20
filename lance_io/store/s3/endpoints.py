"""Which endpoint of an AWS service is asked, as AWS's own tools look for it.

    the storage option
    AWS_ENDPOINT_URL_S3 (_DYNAMODB, _STS)
    AWS_ENDPOINT_URL
    AWS_ENDPOINT                                            of S3 only: what pylance reads
    of the profile: the `services` section that it names, then its `endpoint_url`

The first that says something counts. All but the option are passed over where AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, or
`ignore_configured_endpoint_urls` as an option or in the profile, is true.
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
    """What is configured beside the storage options that name endpoints.

    ignores  whether variables and profile are passed over
    """

    def __init__(self, ignore: str | None, environment: Mapping[str, str], profile: str | None) -> None:
        """Read the files of profiles, where there are any.

        ignore   what option or variable say of it, None for nothing
        profile  of AWS's files, None for the usual one
        Raises `UsageError` for files that are none of profiles, and for a switch that makes no sense.
        """
        self._environment = environment
        self._profile = profile or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
        self._values, self._of_services = _read_profile(environment, self._profile)
        self.ignores = switch(_IGNORE, ignore or self._values.get(_IGNORE) or "false")

    def find(self, service: Service) -> str | None:
        """The endpoint of a service; None for Amazon's own."""
        found = self.find_with_origin(service)
        return None if found is None else found[0]

    def find_with_origin(self, service: Service) -> tuple[str, str] | None:
        """The same, and which variable or part of which profile says so."""
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
    """The values of a profile, and the endpoints in the `services` section that it names.

    Of both files, as botocore reads them: what the file of credentials says stands before the other one.
    """
    config, credentials = read_files(environment)
    values = {**config.get(section_of(name, config), {}), **credentials.get(name, {})}
    named = config.get(f"services {values['services']}", {}) if values.get("services") else {}
    endpoints = {service: url for service, text in named.items() if (url := _members(text).get(_URL))}
    return values, endpoints


def _members(text: str) -> dict[str, str]:
    """Nested values: a line each, behind the name."""
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line]
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
