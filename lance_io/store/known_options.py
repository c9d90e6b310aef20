"""Names of all storage options: an unknown name may be a typing error, and causes one warning.

Options of other schemes are accepted for every URI, and so are options of pylance that have no effect here:
one dictionary may serve several tables, and both libraries.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Final

from lance_io.store.costs import COST_OPTIONS
from lance_io.store.profile import PROFILE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

_OURS: Final = (*PROFILE_OPTIONS, *COST_OPTIONS, "store_costs", "durability", "exclusive_create", "fast_get")
_PROVIDED: Final = ("expires_at_millis", "refresh_offset_millis")
_CLIENT: Final = """
    allow_http allow_invalid_certificates client_max_retries client_retry_timeout connect_timeout
    default_content_type disable_system_certificates download_retry_count http1_only http2_keep_alive_interval
    http2_keep_alive_timeout http2_keep_alive_while_idle http2_max_frame_size http2_only pool_idle_timeout
    pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url randomize_addresses read_timeout
    request_timeout timeout user_agent
"""
_S3: Final = """
    access_key_id bucket bucket_name checksum_algorithm conditional_put container_authorization_token_file
    container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region
    disable_bulk_delete disable_tagging endpoint endpoint_url endpoint_url_dynamodb endpoint_url_s3
    endpoint_url_sts
    ignore_configured_endpoint_urls imdsv1_fallback metadata_endpoint profile region request_checksum_calculation
    request_payer role_arn role_session_name s3_express secret_access_key server_side_encryption session_token
    skip_signature sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id token unsigned_payload
    virtual_hosted_style_request web_identity_token_file
"""
_OF_S3: Final = "aws_allow_http dynamodb_endpoint dynamodb_endpoint_url ddb_table_name"
_GOOGLE: Final = """
    google_application_credentials application_credentials google_base_url base_url google_bearer_token bearer_token
    google_bucket google_bucket_name google_service_account google_service_account_key google_service_account_path
    google_skip_signature google_storage_token service_account service_account_key service_account_path
"""
_AZURE: Final = """
    access_key account_key account_name authority_host authority_id bearer_token client_id client_secret
    container_name credential_type disable_tagging encryption_key endpoint fabric_cluster_identifier
    fabric_session_token fabric_token_service_url fabric_workload_host federated_token_file identity_endpoint
    master_key msi_endpoint msi_resource_id object_id sas_key sas_token skip_signature tenant_id token use_azure_cli
    use_emulator use_fabric_endpoint
"""
_OSS: Final = """
    oss_endpoint oss_access_key_id oss_secret_access_key oss_access_key_secret oss_security_token oss_region
    access_key_secret security_token object_store_use_emulator
"""
_PYLANCE: Final = """
    s3_storage_class block_size max_retries retry_timeout list_is_lexically_ordered use_opendal
    use_constant_size_upload_parts
"""
_NOT_OPENED: Final = ("cos_", "goosefs_", "hf_", "tos_")  # of schemes that only pylance opens
_PYLANCE_PACE: Final = "lance_aimd_"  # requests are paced in another way here
_PREFIXES: Final = ("headers.", _PYLANCE_PACE, *_NOT_OPENED)


def _all_names() -> frozenset[str]:
    azure, s3, client = _AZURE.split(), _S3.split(), _CLIENT.split()
    all_names = [*_OURS, *_PROVIDED, *client, *s3, *azure]
    for names in (_OF_S3, _GOOGLE, _OSS, _PYLANCE):
        all_names += names.split()
    all_names += [f"aws_{name}" for name in s3]
    all_names += [f"azure_{name}" for name in (*azure, *client)] + [f"azure_storage_{name}" for name in azure]
    return frozenset(all_names)


KNOWN: Final = _all_names()

_warned: set[str] = set()
_lock = threading.Lock()


def warn_unknown(names: Iterable[str], stacklevel: int = 2) -> None:
    """Warn of names (in lower case) that are no known option, once for each name in this process."""
    for name in names:
        if name in KNOWN or name.startswith(_PREFIXES):
            continue
        with _lock:
            if name in _warned:
                continue
            _warned.add(name)
        import difflib

        near = difflib.get_close_matches(name, sorted(KNOWN), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        warnings.warn(f"storage option {name!r} is not known, and has no effect{hint}", UserWarning, stacklevel)
