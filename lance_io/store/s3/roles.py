"""Credentials of a role named by storage options, assumed by a token in a file or with other credentials.

    aws_role_arn, aws_web_identity_token_file    AssumeRoleWithWebIdentity; reads the file for each request
    aws_role_arn                                 AssumeRole, signed by the other configured keys

For roles that only the environment or a profile names, aiobotocore's own search does the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lance_io.store.cloud.client_options import file_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.store.s3.bucket_options import S3Options

SESSION_NAME: Final = "lance_io"


class Role(NamedTuple):
    """A role to assume.

    token_file    web identity token; None to sign with other credentials
    sts_endpoint  endpoint of STS; None for Amazon's in the region
    """

    arn: str
    session_name: str = SESSION_NAME
    token_file: str | None = None
    sts_endpoint: str | None = None


def token_secrets(options: S3Options) -> tuple[str, ...]:
    """Tokens sent to credential services, to hide them in messages.

    Covers roles named by options or environment, and containers.
    """
    variables = {**os.environ, **options.container_variables}
    files = [variables.get(name) for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")]
    if options.role is not None:
        files.append(options.role.token_file)
    token = variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    return (token, *(text for file in files for text in file_secret(file)))


def assumed_by(
    role: Role, session: Any, region: str, find: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    """A function that returns the role's credentials, which expire.

    session  an aiobotocore session
    find     returns the credentials that assume the role; None without any
    """
    from aiobotocore import credentials
    from botocore.exceptions import NoCredentialsError
    from botocore.utils import FileWebIdentityTokenLoader

    def open_sts(service: str, **arguments: Any) -> Any:
        return session.create_client(service, region_name=region, endpoint_url=role.sts_endpoint, **arguments)

    async def assume() -> Any:
        extra_args = {"RoleSessionName": role.session_name}
        if role.token_file is not None:
            loader = FileWebIdentityTokenLoader(role.token_file)
            fetcher = credentials.AioAssumeRoleWithWebIdentityCredentialFetcher(
                open_sts, loader, role.arn, extra_args=extra_args
            )
        else:
            source = await find()
            if source is None:
                raise NoCredentialsError
            fetcher = credentials.AioAssumeRoleCredentialFetcher(open_sts, source, role.arn, extra_args=extra_args)
        return credentials.AioDeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    return assume
