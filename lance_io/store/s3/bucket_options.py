"""What the storage options and the environment say about an S3 bucket.

    option (any case)                         environment          meaning
    aws_region, region                        AWS_REGION, AWS_DEFAULT_REGION
    aws_access_key_id, access_key_id          AWS_ACCESS_KEY_ID    static credentials; else aiobotocore's usual chain:
    aws_secret_access_key, secret_access_key  AWS_SECRET_...       environment, profile, web identity, container,
    aws_session_token, session_token, ...     AWS_SESSION_TOKEN    instance role
    aws_profile                               AWS_PROFILE          a profile of ~/.aws
    aws_endpoint, endpoint, ..._url           see `endpoints.py`   another service than Amazon's
    aws_virtual_hosted_style_request          the same, upper case bucket in the host name (default: Amazon only)
    aws_skip_signature                        the same             anonymous requests
    fast_get                                  -                    aiohttp: GETs go through that; false: through
                                                                   aiobotocore

`cloud/client_options.py` has those of all clients. AWS_ALLOW_HTTP and AWS_CA_BUNDLE stand for ALLOW_HTTP and
PROXY_CA_CERTIFICATE there.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from dataclasses import field
from hashlib import md5
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.store.cloud.client_options import ClientOptions, OptionSource, check_endpoint, fingerprint, parse_client
from lance_io.store.s3.endpoints import Endpoints, Service
from lance_io.store.s3.roles import SESSION_NAME, Role
from lance_io.store.storage_options import switch

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTAINER: Final = (  # who gives keys to what runs in a container; variables of these names are aiobotocore's to read
    "aws_container_credentials_relative_uri",
    "aws_container_credentials_full_uri",
    "aws_container_authorization_token_file",
)
_ALIASES = {
    "aws_region": ("aws_region", "region", "aws_default_region", "default_region"),
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "session_token", "aws_token", "token"),
    "aws_endpoint": ("aws_endpoint", "endpoint", "aws_endpoint_url_s3", "aws_endpoint_url", "endpoint_url"),
    "ignore_configured_endpoint_urls": ("ignore_configured_endpoint_urls", "aws_ignore_configured_endpoint_urls"),
    "aws_virtual_hosted_style_request": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
    "aws_skip_signature": ("aws_skip_signature", "skip_signature"),
    "aws_s3_express": ("aws_s3_express", "s3_express"),
    "aws_request_payer": ("aws_request_payer", "request_payer"),
    "aws_unsigned_payload": ("aws_unsigned_payload", "unsigned_payload"),
    "aws_checksum_algorithm": ("aws_checksum_algorithm", "checksum_algorithm"),
    "aws_role_arn": ("aws_role_arn", "role_arn"),
    "aws_role_session_name": ("aws_role_session_name", "role_session_name"),
    "aws_web_identity_token_file": ("aws_web_identity_token_file", "web_identity_token_file"),
    "aws_endpoint_url_sts": ("aws_endpoint_url_sts", "endpoint_url_sts"),
    "aws_conditional_put": ("aws_conditional_put", "conditional_put"),
    "allow_http": ("allow_http", "aws_allow_http"),
    "aws_metadata_endpoint": ("aws_metadata_endpoint", "metadata_endpoint"),
    "aws_imdsv1_fallback": ("aws_imdsv1_fallback", "imdsv1_fallback"),
    **{name: (name, name.removeprefix("aws_")) for name in CONTAINER},
}
CUSTOMER_KEY_BYTES: Final = 32
CHECKSUM_ALGORITHMS: Final = ("SHA256", "SHA1", "CRC32")  # that need no library beside aiobotocore

Transport = Literal["http", "aiohttp", "aiobotocore"]
"""What sends ranged GETs: our own client, a bare aiohttp session, or aiobotocore with all that it knows."""

_FROM_CHAIN = frozenset(  # read by aiobotocore
    {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_role_arn", "aws_role_session_name",
     "aws_web_identity_token_file", "aws_endpoint_url_sts", *CONTAINER}
)  # fmt: skip


_CREDENTIAL_SOURCES: Final = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ROLE_ARN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


class Keys(NamedTuple):
    """What requests are signed with, by aiobotocore's names. Not to be shown."""

    access_key: str
    secret_key: str
    token: str | None
    account_id: str | None = None


@dataclass(frozen=True, slots=True)
class S3Options(ClientOptions):
    """Everything that is fixed about a bucket before the first request. Secrets do not show in `repr`."""

    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    profile: str | None = None
    ignores_endpoints: bool = False  # that variables and profiles have
    database_endpoint: str | None = None  # that these have for DynamoDB
    virtual_hosted: bool = False
    express: bool = False
    transport: Transport = "http"
    read_headers: Mapping[str, str] = field(default_factory=dict)
    put_arguments: Mapping[str, object] = field(default_factory=dict, repr=False)
    customer_key: str | None = field(default=None, repr=False)  # that objects are encrypted with, in base64
    checksum_algorithm: str | None = None  # of what is sent, as aiobotocore names it
    unsigned_payload: bool = False
    role: Role | None = None  # that is assumed
    decides: bool = True  # the store decides which of many creators wins
    container: Mapping[str, str] = field(default_factory=dict)  # variables of the environment that options stand for
    metadata_endpoint: str | None = None  # of the machine's metadata service, which gives keys of its role
    old_metadata: bool = True  # it is asked in its old way where it does not know the new one
    checksums: str | None = None  # "when_supported", "when_required", or aiobotocore's default

    @property
    def access(self) -> str:
        """See `ClientOptions`."""
        found = access_of(self, os.environ)
        return found if self.customer_key is None else f"{found}, object key {fingerprint(self.customer_key)}"

    @property
    def object_headers(self) -> dict[str, str]:
        """Of requests that read an object, beside those of ranges."""
        if self.customer_key is None:
            return {**self.read_headers, **self.headers}
        name = "x-amz-server-side-encryption-customer"
        digest = md5(b64decode(self.customer_key), usedforsecurity=False).digest()
        key = {f"{name}-algorithm": "AES256", f"{name}-key": self.customer_key}
        return {**self.read_headers, **self.headers, **key, f"{name}-key-md5": b64encode(digest).decode()}

    @property
    def identity(self) -> str:
        """The bucket and where it is."""
        return f"s3://{self.bucket}@{self.endpoint or 'aws'}"

    @property
    def fast_get(self) -> bool:
        """Are GETs signed here?"""
        return self.transport != "aiobotocore"

    @property
    def is_amazon(self) -> bool:
        """Is the service Amazon's own?"""
        host = urlsplit(self.endpoint or "https://s3.amazonaws.com").hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never appear in a message."""
        given = (self.secret_key, self.token, self.access_key, self.customer_key, *self.header_secrets)
        return tuple(secret for secret in given if secret)


def parse_s3(bucket: str, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> S3Options:
    """Read storage options (lower-case names), with the environment behind them.

    Raises `UsageError` for values that make no sense, for half a set of credentials, and for an `http://` endpoint
    without `allow_http`.
    """
    source = os.environ if environment is None else environment
    found = OptionSource(options, source, _ALIASES, "aws_", _FROM_CHAIN | {"aws_endpoint"})  # see `endpoints.py`
    configured = Endpoints(found.text("ignore_configured_endpoint_urls"), source, found.text("aws_profile"))
    endpoint = _endpoint(found, configured, bucket)
    express = found.switch("aws_s3_express", bucket.endswith("--x-s3"))
    keys = _keys(found)
    payer = found.text("aws_request_payer")
    encryption, customer_key = _encryption(found)
    client = parse_client(found)
    return S3Options(
        bucket=bucket,
        region=found.text("aws_region"),
        access_key=None if keys is None else keys.access_key,
        secret_key=None if keys is None else keys.secret_key,
        token=found.text("aws_session_token"),
        profile=found.text("aws_profile"),
        ignores_endpoints=configured.ignores,
        database_endpoint=_configured(found, "aws_endpoint_url_dynamodb", configured, "dynamodb"),
        endpoint=endpoint,
        virtual_hosted=found.switch("aws_virtual_hosted_style_request", endpoint is None and "." not in bucket),
        skip_signature=found.switch("aws_skip_signature", False),
        express=express,
        transport="aiobotocore" if express else _transport(found),
        **client,
        read_headers={"x-amz-request-payer": "requester"} if payer and switch("aws_request_payer", payer) else {},
        put_arguments=_put_arguments(encryption, client["content_type"]),
        customer_key=customer_key,
        checksum_algorithm=_checksum_algorithm(found),
        unsigned_payload=found.switch("aws_unsigned_payload", False),
        decides=_decides(found),
        container=_container(found),
        metadata_endpoint=_metadata_endpoint(found),
        old_metadata=found.switch("aws_imdsv1_fallback", True),
        role=_role(found, source, configured),
        checksums=found.text("aws_request_checksum_calculation") or ("when_required" if endpoint else None),
    )


def _keys(found: OptionSource) -> Keys | None:
    access_key, secret_key = found.text("aws_access_key_id"), found.text("aws_secret_access_key")
    if (access_key is None) != (secret_key is None):
        raise UsageError("storage options: aws_access_key_id and aws_secret_access_key go together, found only one")
    if access_key is None or secret_key is None:
        return None
    return Keys(access_key, secret_key, found.text("aws_session_token"))


def keys_given(options: Mapping[str, str]) -> Keys | None:
    """Those among storage options (lower-case names). Raises `UsageError` for half a set."""
    return _keys(OptionSource(options, {}, _ALIASES, "aws_"))


def _endpoint(found: OptionSource, configured: Endpoints, bucket: str) -> str | None:
    """The endpoint without a slash at its end, and without the bucket should it lead the host name."""
    given = found.text("aws_endpoint")
    text = _configured(found, "aws_endpoint", configured, "s3") if given is None else given
    if not text:
        return None
    scheme, host, path = check_endpoint("aws_endpoint", text, found)
    return f"{scheme}://{host.removeprefix(f'{bucket}.')}{path}"


def _configured(found: OptionSource, name: str, configured: Endpoints, service: Service) -> str | None:
    """What variables and profiles say of an endpoint; its origin is noted as that of the option."""
    text, origin = configured.find_with_origin(service) or (None, "")
    return None if text is None else found.note(name, text, origin)


def _transport(found: OptionSource) -> Transport:
    """What is to send GETs, as far as that can be chosen."""
    text = found.text("fast_get")
    if text is not None and text.strip().lower() == "aiohttp":
        return "aiohttp"
    return "http" if found.switch("fast_get", True) else "aiobotocore"


def keys_at_hand(options: S3Options, environment: Mapping[str, str]) -> tuple[str, str, str | None] | None:
    """Access key, secret and session token that lie open: in the options or, as botocore reads it, the environment.

    None: a profile, a service or nobody has them, or they will expire, and aiobotocore has to look.
    """
    if options.provided is not None or options.role is not None:
        return None
    if options.access_key is not None and options.secret_key is not None:
        return options.access_key, options.secret_key, options.token
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if options.profile is not None or not key or not secret or environment.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    return key, secret, environment.get("AWS_SECURITY_TOKEN") or environment.get("AWS_SESSION_TOKEN")


def access_of(options: S3Options, environment: Mapping[str, str]) -> str:
    """What tells one set of credentials from another, without a secret.

    The access key where it lies open. Where profiles or services give keys that change, where they are looked for.
    """
    if options.skip_signature:
        return "anonymous"
    if options.provided is not None:
        return options.provided.identity
    if options.role is not None:
        return f"role {options.role.arn} as {options.role.session_name}"
    keys = keys_at_hand(options, environment)
    if keys is not None:
        return f"key {keys[0]}"
    named = {**environment, **options.container}
    found = (options.profile, [named.get(name) for name in _CREDENTIAL_SOURCES])
    return repr(found if options.metadata_endpoint is None else (*found, options.metadata_endpoint))


def has_profiles(options: S3Options, environment: Mapping[str, str]) -> bool:
    """Whether there is a file of Amazon's that may say something about region or certificates."""
    files = (
        environment.get("AWS_CONFIG_FILE") or "~/.aws/config",
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
    )
    return options.profile is not None or any(os.path.exists(os.path.expanduser(file)) for file in files)


def _encryption(found: OptionSource) -> tuple[dict[str, object], str | None]:
    """Server-side encryption, as aiobotocore names it, and the key of one's own. Neither is shown."""
    arguments: dict[str, object] = {}
    encryption, key = found.text("aws_server_side_encryption"), found.text("aws_sse_customer_key_base64")
    if (encryption or "").lower() == "sse-c":
        try:
            is_right = len(b64decode(key or "", validate=True)) == CUSTOMER_KEY_BYTES
        except ValueError:
            is_right = False
        if not is_right:
            raise UsageError(
                f"storage option aws_sse_customer_key_base64: expected a key of {CUSTOMER_KEY_BYTES} bytes in base64, "
                "as aws_server_side_encryption is 'sse-c'"
            )
        return arguments, key
    if key is not None:
        raise UsageError("storage option aws_sse_customer_key_base64: needs aws_server_side_encryption to be 'sse-c'")
    if encryption:
        arguments["ServerSideEncryption"] = encryption
    if key := found.text("aws_sse_kms_key_id"):
        arguments["SSEKMSKeyId"] = key
    if found.switch("aws_sse_bucket_key_enabled", False):
        arguments["BucketKeyEnabled"] = True
    return arguments, None


def _container(found: OptionSource) -> dict[str, str]:
    given = {name.upper(): found.text(name) for name in CONTAINER}
    return {name: text for name, text in given.items() if text}


def _metadata_endpoint(found: OptionSource) -> str | None:
    text = found.text("aws_metadata_endpoint")
    if text and (urlsplit(text).scheme not in ("http", "https") or urlsplit(text).username is not None):
        raise UsageError("storage option aws_metadata_endpoint: expected http(s)://host[:port] without a user name")
    return text or None


def _put_arguments(encryption: dict[str, object], content_type: str | None) -> dict[str, object]:
    return {**encryption, "ContentType": content_type} if content_type else encryption


def _checksum_algorithm(found: OptionSource) -> str | None:
    text = found.text("aws_checksum_algorithm")
    if text is None:
        return None
    if text.upper() not in CHECKSUM_ALGORITHMS:
        raise UsageError(
            f"storage option aws_checksum_algorithm: expected one of {', '.join(CHECKSUM_ALGORITHMS)}, found {text!r}"
        )
    return text.upper()


def _role(found: OptionSource, environment: Mapping[str, str], configured: Endpoints) -> Role | None:
    """The one that the options name; what the environment says of roles, aiobotocore reads."""
    token_file, arn = found.text("aws_web_identity_token_file"), found.text("aws_role_arn")
    arn = arn or (environment.get("AWS_ROLE_ARN") if token_file else None)
    if arn is None:
        if token_file is not None:
            raise UsageError("storage option aws_web_identity_token_file: needs aws_role_arn")
        return None
    endpoint = found.text("aws_endpoint_url_sts") or _configured(found, "aws_endpoint_url_sts", configured, "sts")
    if endpoint:
        endpoint = "{}://{}{}".format(*check_endpoint("aws_endpoint_url_sts", endpoint, found))
    name = found.text("aws_role_session_name") or environment.get("AWS_ROLE_SESSION_NAME") or SESSION_NAME
    return Role(arn, name, token_file, endpoint or None)


def _decides(found: OptionSource) -> bool:
    text = (found.text("aws_conditional_put") or "etag").strip().lower()
    if text not in ("etag", "disabled"):  # pylance knew DynamoDB here once
        raise UsageError(f"storage option aws_conditional_put: expected 'etag' or 'disabled', found {text!r}")
    return text == "etag"
