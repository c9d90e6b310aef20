"""Storage options and environment variables of an S3 bucket.

    option (any case)                         environment          meaning
    aws_region, region                        AWS_REGION, AWS_DEFAULT_REGION
    aws_access_key_id, access_key_id          AWS_ACCESS_KEY_ID    static credentials; default: aiobotocore's chain of
    aws_secret_access_key, secret_access_key  AWS_SECRET_...       environment, profile, web identity, container,
    aws_session_token, session_token, ...     AWS_SESSION_TOKEN    instance role
    aws_profile                               AWS_PROFILE          a profile of ~/.aws
    aws_endpoint, endpoint, ..._url           see `endpoints.py`   URL of a service other than Amazon's
    aws_virtual_hosted_style_request          the same, upper case bucket in the host name (default: Amazon only)
    aws_skip_signature                        the same             anonymous requests

`cloud/client_options.py` lists the options of all clients. AWS_ALLOW_HTTP and AWS_CA_BUNDLE replace ALLOW_HTTP and
PROXY_CA_CERTIFICATE there.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from dataclasses import field
from hashlib import md5
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from lance_io.errors import UsageError
from lance_io.records import dataclass
from lance_io.store.cloud.client_options import ClientOptions, OptionSource, check_endpoint, fingerprint, parse_client
from lance_io.store.s3.endpoints import Endpoints, Service
from lance_io.store.s3.roles import SESSION_NAME, Role
from lance_io.store.storage_options import switch

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTAINER: Final = (  # sources of keys within a container; aiobotocore reads variables of these names
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
CHECKSUM_ALGORITHMS: Final = ("SHA256", "SHA1", "CRC32")  # need no library besides aiobotocore

_FROM_CHAIN = frozenset(  # aiobotocore reads these from the environment itself
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
    """Signing keys, with aiobotocore's names. All are secrets."""

    access_key: str
    secret_key: str
    token: str | None
    account_id: str | None = None


@dataclass(frozen=True, slots=True)
class S3Options(ClientOptions):
    """Settings of a bucket before the first request. `repr` hides secrets."""

    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    profile: str | None = None
    ignores_endpoints: bool = False  # whether endpoints of variables and profiles are ignored
    database_endpoint: str | None = None  # of DynamoDB, from variables and profiles
    virtual_hosted: bool = False
    express: bool = False
    read_headers: Mapping[str, str] = field(default_factory=dict)
    put_arguments: Mapping[str, object] = field(default_factory=dict, repr=False)
    customer_key: str | None = field(default=None, repr=False)  # of SSE-C, in base64
    checksum_algorithm: str | None = None  # of uploads, with aiobotocore's name
    unsigned_payload: bool = False
    role: Role | None = None  # to assume
    decides: bool = True  # whether the store supports conditional puts
    container: Mapping[str, str] = field(default_factory=dict)  # environment variables set by options
    metadata_endpoint: str | None = None  # of the machine's metadata service, a source of keys
    old_metadata: bool = True  # whether to fall back to IMDSv1
    checksums: str | None = None  # "when_supported" or "when_required"; None for aiobotocore's default

    @property
    def access(self) -> str:
        """See `ClientOptions`."""
        access = access_of(self, os.environ)
        return access if self.customer_key is None else f"{access}, object key {fingerprint(self.customer_key)}"

    @property
    def object_headers(self) -> dict[str, str]:
        """Headers of requests that read an object, besides those of ranges."""
        if self.customer_key is None:
            return {**self.read_headers, **self.headers}
        name = "x-amz-server-side-encryption-customer"
        digest = md5(b64decode(self.customer_key), usedforsecurity=False).digest()
        key = {f"{name}-algorithm": "AES256", f"{name}-key": self.customer_key}
        return {**self.read_headers, **self.headers, **key, f"{name}-key-md5": b64encode(digest).decode()}

    @property
    def identity(self) -> str:
        """Bucket and endpoint."""
        return f"s3://{self.bucket}@{self.endpoint or 'aws'}"

    @property
    def is_amazon(self) -> bool:
        """Whether the service is Amazon's own."""
        host = urlsplit(self.endpoint or "https://s3.amazonaws.com").hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts to hide in messages."""
        secrets = (self.secret_key, self.token, self.access_key, self.customer_key, *self.header_secrets)
        return tuple(secret for secret in secrets if secret)


def parse_s3(bucket: str, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> S3Options:
    """Parse storage options (lower-case names), then the environment.

    Raises `UsageError` for invalid values, for an incomplete set of credentials, and for an `http://` endpoint without
    `allow_http`.
    """
    variables = os.environ if environment is None else environment
    source = OptionSource(options, variables, _ALIASES, "aws_", _FROM_CHAIN | {"aws_endpoint"})  # see `endpoints.py`
    configured = Endpoints(source.text("ignore_configured_endpoint_urls"), variables, source.text("aws_profile"))
    endpoint = _endpoint(source, configured, bucket)
    express = source.switch("aws_s3_express", bucket.endswith("--x-s3"))
    keys = _keys(source)
    payer = source.text("aws_request_payer")
    encryption, customer_key = _encryption(source)
    client = parse_client(source)
    return S3Options(
        bucket=bucket,
        region=source.text("aws_region"),
        access_key=None if keys is None else keys.access_key,
        secret_key=None if keys is None else keys.secret_key,
        token=source.text("aws_session_token"),
        profile=source.text("aws_profile"),
        ignores_endpoints=configured.ignores,
        database_endpoint=_configured(source, "aws_endpoint_url_dynamodb", configured, "dynamodb"),
        endpoint=endpoint,
        virtual_hosted=source.switch("aws_virtual_hosted_style_request", endpoint is None and "." not in bucket),
        skip_signature=source.switch("aws_skip_signature", False),
        express=express,
        **client,
        read_headers={"x-amz-request-payer": "requester"} if payer and switch("aws_request_payer", payer) else {},
        put_arguments=_put_arguments(encryption, client["content_type"]),
        customer_key=customer_key,
        checksum_algorithm=_checksum_algorithm(source),
        unsigned_payload=source.switch("aws_unsigned_payload", False),
        decides=_decides(source),
        container=_container(source),
        metadata_endpoint=_metadata_endpoint(source),
        old_metadata=source.switch("aws_imdsv1_fallback", True),
        role=_role(source, variables, configured),
        checksums=source.text("aws_request_checksum_calculation") or ("when_required" if endpoint else None),
    )


def _keys(source: OptionSource) -> Keys | None:
    access_key, secret_key = source.text("aws_access_key_id"), source.text("aws_secret_access_key")
    if (access_key is None) != (secret_key is None):
        raise UsageError("storage options: aws_access_key_id and aws_secret_access_key go together, found only one")
    if access_key is None or secret_key is None:
        return None
    return Keys(access_key, secret_key, source.text("aws_session_token"))


def provided_keys(options: Mapping[str, str]) -> Keys | None:
    """Keys among storage options (lower-case names). Raises `UsageError` for an incomplete set."""
    return _keys(OptionSource(options, {}, _ALIASES, "aws_"))


def _endpoint(source: OptionSource, configured: Endpoints, bucket: str) -> str | None:
    """The endpoint without a final slash, and without the bucket at the start of its host name."""
    option = source.text("aws_endpoint")
    text = _configured(source, "aws_endpoint", configured, "s3") if option is None else option
    if not text:
        return None
    scheme, host, path = check_endpoint("aws_endpoint", text, source)
    return f"{scheme}://{host.removeprefix(f'{bucket}.')}{path}"


def _configured(source: OptionSource, name: str, configured: Endpoints, service: Service) -> str | None:
    """An endpoint from variables and profiles; recorded as the origin of the option `name`."""
    text, origin = configured.find_with_origin(service) or (None, "")
    return None if text is None else source.note(name, text, origin)


def static_keys(options: S3Options, environment: Mapping[str, str]) -> tuple[str, str, str | None] | None:
    """Static access key, secret and session token from the options or, like botocore, from the environment.

    None if aiobotocore has to search: they expire, or only a profile or service may have some.
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
    """Identifies a set of credentials without a secret.

    The access key of static keys; the source of keys from profiles or services, which may change.
    """
    if options.skip_signature:
        return "anonymous"
    if options.provided is not None:
        return options.provided.identity
    if options.role is not None:
        return f"role {options.role.arn} as {options.role.session_name}"
    keys = static_keys(options, environment)
    if keys is not None:
        return f"key {keys[0]}"
    variables = {**environment, **options.container}
    sources = (options.profile, [variables.get(name) for name in _CREDENTIAL_SOURCES])
    return repr(sources if options.metadata_endpoint is None else (*sources, options.metadata_endpoint))


def has_profiles(options: S3Options, environment: Mapping[str, str]) -> bool:
    """Whether there is an AWS profile file, which may set region or certificates."""
    files = (
        environment.get("AWS_CONFIG_FILE") or "~/.aws/config",
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
    )
    return options.profile is not None or any(os.path.exists(os.path.expanduser(file)) for file in files)


def _encryption(source: OptionSource) -> tuple[dict[str, object], str | None]:
    """aiobotocore's arguments for server-side encryption, and the customer-provided key. Both are secrets."""
    arguments: dict[str, object] = {}
    encryption, key = source.text("aws_server_side_encryption"), source.text("aws_sse_customer_key_base64")
    if (encryption or "").lower() == "sse-c":
        try:
            is_valid = len(b64decode(key or "", validate=True)) == CUSTOMER_KEY_BYTES
        except ValueError:
            is_valid = False
        if not is_valid:
            raise UsageError(
                f"storage option aws_sse_customer_key_base64: expected a key of {CUSTOMER_KEY_BYTES} bytes in base64, "
                "as aws_server_side_encryption is 'sse-c'"
            )
        return arguments, key
    if key is not None:
        raise UsageError("storage option aws_sse_customer_key_base64: needs aws_server_side_encryption to be 'sse-c'")
    if encryption:
        arguments["ServerSideEncryption"] = encryption
    if key := source.text("aws_sse_kms_key_id"):
        arguments["SSEKMSKeyId"] = key
    if source.switch("aws_sse_bucket_key_enabled", False):
        arguments["BucketKeyEnabled"] = True
    return arguments, None


def _container(source: OptionSource) -> dict[str, str]:
    variables = {name.upper(): source.text(name) for name in CONTAINER}
    return {name: text for name, text in variables.items() if text}


def _metadata_endpoint(source: OptionSource) -> str | None:
    text = source.text("aws_metadata_endpoint")
    if text and (urlsplit(text).scheme not in ("http", "https") or urlsplit(text).username is not None):
        raise UsageError("storage option aws_metadata_endpoint: expected http(s)://host[:port] without a user name")
    return text or None


def _put_arguments(encryption: dict[str, object], content_type: str | None) -> dict[str, object]:
    return {**encryption, "ContentType": content_type} if content_type else encryption


def _checksum_algorithm(source: OptionSource) -> str | None:
    text = source.text("aws_checksum_algorithm")
    if text is None:
        return None
    if text.upper() not in CHECKSUM_ALGORITHMS:
        raise UsageError(
            f"storage option aws_checksum_algorithm: expected one of {', '.join(CHECKSUM_ALGORITHMS)}, found {text!r}"
        )
    return text.upper()


def _role(source: OptionSource, environment: Mapping[str, str], configured: Endpoints) -> Role | None:
    """The role named by options; aiobotocore reads roles in the environment."""
    token_file, arn = source.text("aws_web_identity_token_file"), source.text("aws_role_arn")
    arn = arn or (environment.get("AWS_ROLE_ARN") if token_file else None)
    if arn is None:
        if token_file is not None:
            raise UsageError("storage option aws_web_identity_token_file: needs aws_role_arn")
        return None
    endpoint = source.text("aws_endpoint_url_sts") or _configured(source, "aws_endpoint_url_sts", configured, "sts")
    if endpoint:
        endpoint = "{}://{}{}".format(*check_endpoint("aws_endpoint_url_sts", endpoint, source))
    name = source.text("aws_role_session_name") or environment.get("AWS_ROLE_SESSION_NAME") or SESSION_NAME
    return Role(arn, name, token_file, endpoint or None)


def _decides(source: OptionSource) -> bool:
    text = (source.text("aws_conditional_put") or "etag").strip().lower()
    if text not in ("etag", "disabled"):  # earlier versions of pylance also accepted DynamoDB
        raise UsageError(f"storage option aws_conditional_put: expected 'etag' or 'disabled', found {text!r}")
    return text == "etag"
