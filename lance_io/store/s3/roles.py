"""Credentials of a role that storage options name: assumed by a token in a file, or with other credentials.

    aws_role_arn, aws_web_identity_token_file    AssumeRoleWithWebIdentity: the file is read whenever it is asked
    aws_role_arn                                 AssumeRole, signed by the keys that there are

Where only the environment or a profile says so, aiobotocore's own search finds the same.
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
    """Whose credentials are asked for.

    token_file    of whom the role trusts; None: those are who has keys
    sts_endpoint  the service that is asked; None: Amazon's of the region
    """

    arn: str
    session_name: str = SESSION_NAME
    token_file: str | None = None
    sts_endpoint: str | None = None


def token_secrets(options: S3Options) -> tuple[str, ...]:
    """The tokens by which services of credentials are asked, so that no message shows them.

    Of the role that the options name or the environment, and of a container.
    """
    named = {**os.environ, **options.container}
    files = [named.get(name) for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")]
    if options.role is not None:
        files.append(options.role.token_file)
    token = named.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    return (token, *(text for file in files for text in file_secret(file)))


def assumed_by(
    role: Role, session: Any, region: str, find: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    """What finds the role's credentials, which expire.

    session  of aiobotocore's, for its clients
    find     those who assume it; gives None where there are none
    """
    from aiobotocore import credentials
    from botocore.exceptions import NoCredentialsError
    from botocore.utils import FileWebIdentityTokenLoader

    def open_sts(service: str, **how: Any) -> Any:
        return session.create_client(service, region_name=region, endpoint_url=role.sts_endpoint, **how)

    async def assume() -> Any:
        named = {"RoleSessionName": role.session_name}
        if role.token_file is not None:
            loader = FileWebIdentityTokenLoader(role.token_file)
            fetcher = credentials.AioAssumeRoleWithWebIdentityCredentialFetcher(
                open_sts, loader, role.arn, extra_args=named
            )
        else:
            source = await find()
            if source is None:
                raise NoCredentialsError
            fetcher = credentials.AioAssumeRoleCredentialFetcher(open_sts, source, role.arn, extra_args=named)
        return credentials.AioDeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    return assume
