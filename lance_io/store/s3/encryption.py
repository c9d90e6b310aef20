"""aiobotocore's arguments for customer-provided keys (SSE-C: the store encrypts and forgets the key) and checksums."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lance_io.store.s3.bucket_options import S3Options

_WITH_KEY: Final = frozenset(
    {"get_object", "head_object", "put_object", "copy_object", "create_multipart_upload", "upload_part",
     "complete_multipart_upload"}
)  # fmt: skip
_WITH_CHECKSUM: Final = frozenset({"put_object", "copy_object", "create_multipart_upload", "upload_part"})


def customer_arguments(options: S3Options, method: str) -> dict[str, Any]:
    """Arguments of a client's method for the customer-provided key; empty without one."""
    if options.customer_key is None or method not in _WITH_KEY:
        return {}
    key = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": b64decode(options.customer_key)}
    if method == "copy_object":
        key |= {f"CopySource{name}": value for name, value in key.items()}
    return key


def checksum_arguments(options: S3Options, method: str) -> dict[str, Any]:
    """Arguments of a client's method for checksums."""
    if options.checksum_algorithm is None or method not in _WITH_CHECKSUM:
        return {}
    return {"ChecksumAlgorithm": options.checksum_algorithm}
