"""Options of a bucket in Alibaba OSS, an S3-compatible service, translated to S3 options.

    option (any case)                            environment
    oss_endpoint, endpoint                       OSS_ENDPOINT
    oss_access_key_id, access_key_id             OSS_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_ID
    oss_secret_access_key, access_key_secret     OSS_ACCESS_KEY_SECRET, ALIBABA_CLOUD_ACCESS_KEY_SECRET
    oss_security_token, security_token           OSS_SECURITY_TOKEN, ALIBABA_CLOUD_SECURITY_TOKEN
    oss_region, region                           OSS_REGION, ALIBABA_CLOUD_REGION; default: from the endpoint's name

All options of `bucket_options.py` work, too. The bucket is part of the host name unless the endpoint is an IP address.
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

_NAMES: Final = {  # by S3 option: OSS options, and the variable without its prefix
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
    """Options (lower-case names) in the form of `parse_s3`.

    Raises `UsageError` without an endpoint: OSS has no global one.
    """
    variables = os.environ if environment is None else environment
    ours = {name for names, _ in _NAMES.values() for name in names}
    translated = {name: text for name, text in options.items() if name not in ours}
    for name, (aliases, variable) in _NAMES.items():
        texts = [options[alias] for alias in aliases if alias in options]
        texts += [text for prefix in _VARIABLES if (text := variables.get(prefix + variable))]
        if texts:
            translated.setdefault(name, texts[0])
    if "aws_endpoint" not in translated:
        raise UsageError("OSS endpoint is required: expected the storage option oss_endpoint, or OSS_ENDPOINT")
    if "://" not in translated["aws_endpoint"]:
        translated["aws_endpoint"] = f"https://{translated['aws_endpoint']}"
    host = urlsplit(translated["aws_endpoint"]).hostname or ""
    if "aws_region" not in translated and (match := _REGION.search(host)):
        translated["aws_region"] = match[1]
    translated.setdefault("aws_virtual_hosted_style_request", str(not _is_address(host)).lower())
    return translated


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
