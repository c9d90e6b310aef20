"""What the storage options and the environment say about a bucket of Alibaba's OSS, which speaks S3, in terms of S3.

    option (any case)                            environment
    oss_endpoint, endpoint                       OSS_ENDPOINT
    oss_access_key_id, access_key_id             OSS_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_ID
    oss_secret_access_key, access_key_secret     OSS_ACCESS_KEY_SECRET, ALIBABA_CLOUD_ACCESS_KEY_SECRET
    oss_security_token, security_token           OSS_SECURITY_TOKEN, ALIBABA_CLOUD_SECURITY_TOKEN
    oss_region, region                           OSS_REGION, ALIBABA_CLOUD_REGION; else of the endpoint's name

All options of `bucket_options.py` are known, too. The bucket is part of the host's name, but where that is an address.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Final = {  # of S3's option: options, and variables without what they begin with
    "aws_endpoint": (("oss_endpoint", "endpoint"), "ENDPOINT"),
    "aws_access_key_id": (("oss_access_key_id", "access_key_id"), "ACCESS_KEY_ID"),
    "aws_secret_access_key": (
        ("oss_secret_access_key", "oss_access_key_secret", "access_key_secret"),
        "ACCESS_KEY_SECRET",
    ),
    "aws_session_token": (("oss_security_token", "security_token"), "SECURITY_TOKEN"),
    "aws_region": (("oss_region", "region"), "REGION"),
}
_VARIABLES: Final = ("OSS_", "ALIBABA_CLOUD_")
_REGION: Final = re.compile(r"oss-([a-z0-9-]+?)(?:-internal)?\.aliyuncs\.com")


def as_s3_options(options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options (lower-case names) as `parse_s3` reads them.

    Raises `UsageError` where nothing names an endpoint: OSS has none that knows all buckets.
    """
    variables = os.environ if environment is None else environment
    ours = {name for names, _ in _NAMES.values() for name in names}
    found = {name: text for name, text in options.items() if name not in ours}
    for name, (names, variable) in _NAMES.items():
        given = [options[one] for one in names if one in options]
        given += [text for first in _VARIABLES if (text := variables.get(first + variable))]
        if given:
            found.setdefault(name, given[0])
    if "aws_endpoint" not in found:
        raise UsageError("OSS endpoint is required: expected the storage option oss_endpoint, or OSS_ENDPOINT")
    if "://" not in found["aws_endpoint"]:
        found["aws_endpoint"] = f"https://{found['aws_endpoint']}"
    host = urlsplit(found["aws_endpoint"]).hostname or ""
    if "aws_region" not in found and (match := _REGION.search(host)):
        found["aws_region"] = match[1]
    found.setdefault("aws_virtual_hosted_style_request", str(not _is_address(host)).lower())
    return found


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
