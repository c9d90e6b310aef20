"""Profiles that are read without AWS's library say what it would say; all others are left to it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.store.s3.bucket_options import S3Options
from lance_io.store.s3.plain_profile import find_plain

if TYPE_CHECKING:
    from pathlib import Path

KEYS = "aws_access_key_id = AKIA1\naws_secret_access_key = secret/1+=\n"
OTHER = "aws_access_key_id=AKIA2\naws_secret_access_key=two%s\n"
TOKEN = "aws_session_token = token\n"
CREDENTIALS = {
    "none": "",
    "default": f"[default]\n{KEYS}",
    "with token": f"[default]\n{KEYS}{TOKEN}",
    "two tokens": f"[default]\n{KEYS}{TOKEN}aws_security_token = older\n",
    "two": f"[default]\n{KEYS}[mine]\n{OTHER}[not-mine]\n{KEYS}",
    "half": "[default]\naws_access_key_id = AKIA1\n",
    "empty": "[default]\naws_access_key_id =\naws_secret_access_key = s\n",
    "empty token": f"[default]\n{KEYS}aws_session_token =\n",
    "region": f"[default]\n{KEYS}region = eu-west-3\n[mine]\n{OTHER}region = eu-north-1\n",
    "process": f"[default]\n{KEYS}credential_process = echo\n",
    "in capitals": "[default]\nAWS_ACCESS_KEY_ID = AKIA1\nAWS_SECRET_ACCESS_KEY = s\n",
}
CONFIGS = {
    "none": "",
    "region": "[default]\nregion = eu-central-1\noutput = json\n[profile mine]\nregion = us-west-2\n",
    "keys": f"[default]\n{OTHER}{TOKEN}[profile mine]\n{KEYS}",
    "profile default": f"[profile default]\nregion = eu-central-1\n{OTHER}",
    "both defaults": "[default]\nregion = eu-central-1\n[profile default]\nregion = us-west-2\n",
    "role": "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = mine\n[profile mine]\nregion = us-west-2\n",
    "nested": "[default]\ns3 =\n  addressing_style = path\nregion = eu-central-1\n",
    "signed in": "[default]\nsso_session = x\nsso_account_id = 1\nsso_role_name = r\n[sso-session x]\nsso_region = a\n",
}
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "nothing": {},
    "a profile": {"AWS_PROFILE": "mine"},
    "by its older name": {"AWS_DEFAULT_PROFILE": "mine"},
    "two profiles": {"AWS_PROFILE": "mine", "AWS_DEFAULT_PROFILE": "default"},
    "a missing one": {"AWS_PROFILE": "nowhere"},
    "half a key": {"AWS_ACCESS_KEY_ID": "AKIA3"},
    "keys": {"AWS_ACCESS_KEY_ID": "AKIA3", "AWS_SECRET_ACCESS_KEY": "three"},
    "an empty key": {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "three"},
    "an identity": {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere", "AWS_ROLE_ARN": "arn:aws:iam::1:role/r"},
}
NAMES = ("PROFILE", "DEFAULT_PROFILE", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "SECURITY_TOKEN")
PLAIN = {("default", "none"), ("with token", "region"), ("two", "region"), ("none", "keys"), ("default", "nested")}


async def asked_of_botocore(profile: str | None) -> tuple[Any, str | None]:
    """Keys of the files as AWS's library finds them, without asking anything else, and the region."""
    from aiobotocore.session import AioSession

    session = AioSession(profile=profile)
    session.get_component("credential_provider").remove("iam-role")
    session.get_component("credential_provider").remove("container-role")
    found = await session.get_credentials()
    frozen = None if found is None else await found.get_frozen_credentials()
    region = session.get_config_variable("region")
    return None if frozen is None else (frozen.access_key, frozen.secret_key, frozen.token), region


@pytest.mark.parametrize("profile", [None, "mine"])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
async def test_what_is_read_is_what_the_library_says(
    profile: str | None, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, credentials = tmp_path / "config", tmp_path / "credentials"
    files = {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(credentials)}
    for name in NAMES:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**files, **ENVIRONMENTS[environment]}.items():
        monkeypatch.setenv(name, value)
    num_keys = 0
    for (_, one), (_, other) in product(CREDENTIALS.items(), CONFIGS.items()):
        credentials.write_text(one)
        config.write_text(other)
        found = find_plain(S3Options("b", profile=profile), {**files, **ENVIRONMENTS[environment]})
        if found is None:
            continue
        if found.keys is None:
            assert found.values.get("region") in (None, *_regions(one, other))
            continue
        num_keys += 1
        keys, region = await asked_of_botocore(profile)
        assert found.keys[:3] == keys
        assert found.values.get("region") == region
    if environment in ("nothing", "a profile", "by its older name", "an empty key"):
        assert num_keys > 10


def _regions(*texts: str) -> list[str]:
    return [line.partition("=")[2].strip() for text in texts for line in text.splitlines() if line.startswith("region")]


def test_what_needs_no_library(tmp_path: Path) -> None:
    environment = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    for one, other in product(CREDENTIALS, CONFIGS):
        (tmp_path / "credentials").write_text(CREDENTIALS[one])
        (tmp_path / "config").write_text(CONFIGS[other])
        found = find_plain(S3Options("b"), environment)
        has_keys = found is not None and found.keys is not None
        if (one, other) in PLAIN:
            assert has_keys, (one, other)
        if {one, other} & {"role", "signed in", "process", "both defaults"}:
            assert found is None, (one, other)


def test_keys_of_files_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(CREDENTIALS["with token"])
    environment = {
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    found = find_plain(S3Options("b"), environment)
    assert found is not None
    assert "secret" not in repr(found)
    assert "token" not in repr(found)
