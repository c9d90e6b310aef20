"""Storage options and environment variables of an S3 bucket.

    option (any case)                         environment          meaning
    aws_region, region                        AWS_REGION, AWS_DEFAULT_REGION
    aws_access_key_id, access_key_id          AWS_ACCESS_KEY_ID    static credentials: access key
    aws_secret_access_key, secret_access_key  AWS_SECRET_...       static credentials: secret key
    aws_session_token, session_token, ...     AWS_SESSION_TOKEN    static credentials: session token
    aws_profile                               AWS_PROFILE          a profile of ~/.aws
    aws_endpoint, endpoint, ..._url           see `endpoints.py`   URL of a service other than Amazon's
    aws_virtual_hosted_style_request          same in upper case   bucket in the host name (default: Amazon only)
    aws_skip_signature                        same in upper case   anonymous requests

Without an access key among the options, the credential chain of aiobotocore is asked: environment, profile, web
identity, container, instance role.

`_ALIASES` lists the options that have several names. `cloud/client_options.py` lists the options that all cloud
stores share; an S3 bucket reads AWS_ALLOW_HTTP and AWS_CA_BUNDLE instead of the variables ALLOW_HTTP and
PROXY_CA_CERTIFICATE.
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

CONTAINER_OPTIONS: Final = (  # where a container gets keys; aiobotocore reads variables with these names, upper case
    "aws_container_credentials_relative_uri",
    "aws_container_credentials_full_uri",
    "aws_container_authorization_token_file",
)
_ALIASES = {  # names of each option; variables have these names in upper case
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
    **{name: (name, name.removeprefix("aws_")) for name in CONTAINER_OPTIONS},
}
CUSTOMER_KEY_BYTES: Final = 32
CHECKSUM_ALGORITHMS: Final = ("SHA256", "SHA1", "CRC32")  # need no library besides aiobotocore

_CHAIN_OPTIONS = frozenset(  # aiobotocore's credential chain reads the variables of these options itself
    {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_role_arn", "aws_role_session_name",
     "aws_web_identity_token_file", "aws_endpoint_url_sts", *CONTAINER_OPTIONS}
)  # fmt: skip


_CREDENTIAL_SOURCES: Final = (  # variables that select where aiobotocore's credential chain finds keys
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
    """Settings of a bucket from options, variables and profiles alone, without a request. `repr` hides secrets."""

    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    profile: str | None = None
    ignores_configured_endpoints: bool = False  # whether to ignore endpoints in variables and profiles
    dynamodb_endpoint: str | None = None  # URL of DynamoDB, from variables and profiles
    virtual_hosted: bool = False  # whether the host name begins with the bucket
    express: bool = False  # whether this is a directory bucket (S3 Express One Zone)
    read_headers: Mapping[str, str] = field(default_factory=dict)  # further headers of requests that read objects
    put_arguments: Mapping[str, object] = field(default_factory=dict, repr=False)  # aiobotocore's names
    customer_key: str | None = field(default=None, repr=False)  # encryption key for SSE-C, in base64
    checksum_algorithm: str | None = None  # checksum of uploads, in upper case
    unsigned_payload: bool = False  # whether signatures leave out the body
    role: Role | None = None  # role to assume
    has_conditional_puts: bool = True  # whether the service supports conditional puts
    container_variables: Mapping[str, str] = field(default_factory=dict)  # CONTAINER_OPTIONS, in upper case
    metadata_endpoint: str | None = None  # URL of the machine's metadata service (IMDS), a source of keys
    imdsv1_fallback: bool = True  # whether to ask IMDSv1 if IMDSv2 does not answer
    checksum_calculation: str | None = None  # "when_supported" or "when_required"; None for aiobotocore's default

    @property
    def access(self) -> str:
        """Identifies the credentials, and the encryption key of the objects (SSE-C), without showing a secret."""
        access = credentials_identity(self, os.environ)
        return access if self.customer_key is None else f"{access}, object key {fingerprint(self.customer_key)}"

    @property
    def object_headers(self) -> dict[str, str]:
        """Headers of requests that read an object, except the `Range` header."""
        if self.customer_key is None:
            return {**self.read_headers, **self.headers}
        name = "x-amz-server-side-encryption-customer"
        digest = md5(b64decode(self.customer_key), usedforsecurity=False).digest()
        key_headers = {f"{name}-algorithm": "AES256", f"{name}-key": self.customer_key}
        return {**self.read_headers, **self.headers, **key_headers, f"{name}-key-md5": b64encode(digest).decode()}

    @property
    def identity(self) -> str:
        """Bucket and endpoint as one text, such as "s3://name@aws"."""
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
    """Parse storage options (lower-case names) and the environment. A storage option takes precedence over a variable.

    environment  the variables; None for those of this process

    Raises `UsageError` for invalid values, for an incomplete set of credentials, and for an `http://` endpoint without
    `allow_http`.
    """
    variables = os.environ if environment is None else environment
    not_from_variables = _CHAIN_OPTIONS | {"aws_endpoint"}  # `Endpoints` reads the variables of endpoints
    source = OptionSource(options, variables, _ALIASES, "aws_", not_from_variables)
    configured_endpoints = Endpoints(
        source.text("ignore_configured_endpoint_urls"), variables, source.text("aws_profile")
    )
    endpoint = _endpoint(source, configured_endpoints, bucket)
    express = source.switch("aws_s3_express", bucket.endswith("--x-s3"))
    keys = _parse_keys(source)
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
        ignores_configured_endpoints=configured_endpoints.ignores,
        dynamodb_endpoint=_configured_endpoint(source, "aws_endpoint_url_dynamodb", configured_endpoints, "dynamodb"),
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
        has_conditional_puts=_has_conditional_puts(source),
        container_variables=_container_variables(source),
        metadata_endpoint=_metadata_endpoint(source),
        imdsv1_fallback=source.switch("aws_imdsv1_fallback", True),
        role=_role(source, variables, configured_endpoints),
        checksum_calculation=source.text("aws_request_checksum_calculation") or ("when_required" if endpoint else None),
    )


def _parse_keys(source: OptionSource) -> Keys | None:
    """Signing keys among the options; None without any."""
    access_key, secret_key = source.text("aws_access_key_id"), source.text("aws_secret_access_key")
    if (access_key is None) != (secret_key is None):
        raise UsageError("storage options: aws_access_key_id and aws_secret_access_key go together, found only one")
    if access_key is None or secret_key is None:
        return None
    return Keys(access_key, secret_key, source.text("aws_session_token"))


def provided_keys(options: Mapping[str, str]) -> Keys | None:
    """Signing keys that stand in storage options (lower-case names); None without any. Reads no variables.

    Raises `UsageError` for an incomplete set.
    """
    return _parse_keys(OptionSource(options, {}, _ALIASES, "aws_"))


def _endpoint(source: OptionSource, configured_endpoints: Endpoints, bucket: str) -> str | None:
    """The endpoint for S3, without a final slash and without the bucket in its host name; None for Amazon's."""
    option = source.text("aws_endpoint")
    text = _configured_endpoint(source, "aws_endpoint", configured_endpoints, "s3") if option is None else option
    if not text:
        return None
    scheme, host, path = check_endpoint("aws_endpoint", text, source)
    return f"{scheme}://{host.removeprefix(f'{bucket}.')}{path}"


def _configured_endpoint(
    source: OptionSource, name: str, configured_endpoints: Endpoints, service: Service
) -> str | None:
    """The endpoint of a service in variables or profiles; None without one.

    Records the variable or profile that sets the endpoint, for error messages about the option `name`.
    """
    text, origin = configured_endpoints.find_with_origin(service) or (None, "")
    return None if text is None else source.note(name, text, origin)


def static_keys(options: S3Options, environment: Mapping[str, str]) -> tuple[str, str, str | None] | None:
    """Static access key, secret key and session token, from the options or, as in botocore, from the environment.

    None if the keys expire, or come from a provider, a role, a profile or a service.
    """
    if options.provided is not None or options.role is not None:
        return None
    if options.access_key is not None and options.secret_key is not None:
        return options.access_key, options.secret_key, options.token
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if options.profile is not None or not key or not secret or environment.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    return key, secret, environment.get("AWS_SECURITY_TOKEN") or environment.get("AWS_SESSION_TOKEN")


def credentials_identity(options: S3Options, environment: Mapping[str, str]) -> str:
    """A text that identifies the credentials without a secret.

    For static keys, it contains the access key. Keys from profiles or services may change, so that for these the text
    contains their source.
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
    variables = {**environment, **options.container_variables}
    sources = (options.profile, [variables.get(name) for name in _CREDENTIAL_SOURCES])
    return repr(sources if options.metadata_endpoint is None else (*sources, options.metadata_endpoint))


def has_profiles(options: S3Options, environment: Mapping[str, str]) -> bool:
    """Whether a profile is chosen, or an AWS profile file exists, which may set region or certificates."""
    files = (
        environment.get("AWS_CONFIG_FILE") or "~/.aws/config",
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
    )
    return options.profile is not None or any(os.path.exists(os.path.expanduser(file)) for file in files)


def _encryption(source: OptionSource) -> tuple[dict[str, object], str | None]:
    """aiobotocore's arguments for server-side encryption, and the customer's key for SSE-C. Both are secrets."""
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


def _container_variables(source: OptionSource) -> dict[str, str]:
    variables = {name.upper(): source.text(name) for name in CONTAINER_OPTIONS}
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


def _role(source: OptionSource, environment: Mapping[str, str], configured_endpoints: Endpoints) -> Role | None:
    """The role to assume, if storage options set a role or a token file; aiobotocore finds other roles itself."""
    token_file, arn = source.text("aws_web_identity_token_file"), source.text("aws_role_arn")
    arn = arn or (environment.get("AWS_ROLE_ARN") if token_file else None)
    if arn is None:
        if token_file is not None:
            raise UsageError("storage option aws_web_identity_token_file: needs aws_role_arn")
        return None
    endpoint = source.text("aws_endpoint_url_sts") or _configured_endpoint(
        source, "aws_endpoint_url_sts", configured_endpoints, "sts"
    )
    if endpoint:
        endpoint = "{}://{}{}".format(*check_endpoint("aws_endpoint_url_sts", endpoint, source))
    name = source.text("aws_role_session_name") or environment.get("AWS_ROLE_SESSION_NAME") or SESSION_NAME
    return Role(arn, name, token_file, endpoint or None)


def _has_conditional_puts(source: OptionSource) -> bool:
    text = (source.text("aws_conditional_put") or "etag").strip().lower()
    if text not in ("etag", "disabled"):  # earlier versions of pylance also accepted a value for DynamoDB
        raise UsageError(f"storage option aws_conditional_put: expected 'etag' or 'disabled', found {text!r}")
    return text == "etag"
