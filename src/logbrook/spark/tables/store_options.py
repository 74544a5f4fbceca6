"""Settings of object stores and HDFS: credentials, endpoints and time limits, from options and from Spark's settings.

There is one vocabulary, that of the Rust library object_store, which delta-rs and obstore use: `aws_access_key_id`,
`azure_storage_account_key`, `google_service_account`, `timeout`. An option `storage.<name>` gives such a setting
itself. Hadoop's names (`fs.s3a.access.key`), as options or as settings of the Spark session, are translated to it.
Without any, the libraries read the environment (`AWS_ACCESS_KEY_ID`) and ask the cloud's metadata service.
"""

import os
import re
from collections.abc import Iterable, Mapping

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.location import Store, split_location, store_of

STORAGE_PREFIX = "storage."
HADOOP_PREFIX = "fs."
SPARK_HADOOP_PREFIX = "spark.hadoop."

# The settings of Hadoop that are read from a Spark session. `fs.s3a.bucket.<bucket>.` overrides `fs.s3a.`.
S3_SETTINGS = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint": "aws_endpoint",
    "fs.s3a.endpoint.region": "aws_region",
    "fs.s3a.encryption.algorithm": "aws_server_side_encryption",
    "fs.s3a.encryption.key": "aws_sse_kms_key_id",
}
_TLS_SETTING = "fs.s3a.connection.ssl.enabled"
GCS_SETTINGS = {
    "fs.gs.auth.service.account.json.keyfile": "google_service_account",
    "fs.gs.auth.service.account.json.key.file": "google_service_account",
}
# Followed by the account's host, or by nothing for every account.
AZURE_SETTINGS = {
    "fs.azure.account.key": "azure_storage_account_key",
    "fs.azure.sas.fixed.token": "azure_storage_sas_token",
    "fs.azure.account.oauth2.client.id": "azure_storage_client_id",
    "fs.azure.account.oauth2.client.secret": "azure_storage_client_secret",
    "fs.azure.account.oauth2.client.endpoint": "azure_storage_tenant_id",
    "fs.azure.account.oauth2.msi.tenant": "azure_storage_tenant_id",
}
# Settings without an account or a bucket in their name.
SESSION_SETTINGS = (*S3_SETTINGS, _TLS_SETTING, *GCS_SETTINGS, *AZURE_SETTINGS)
# Prefixes of settings with an account or a bucket in their name. Hadoop itself defines none with these prefixes.
SESSION_PREFIXES = ("fs.s3a.bucket.", *(f"{name}." for name in AZURE_SETTINGS))
_S3_ENCRYPTION = {"sse-s3": "AES256", "sse-kms": "aws:kms", "dsse-kms": "aws:kms:dsse"}
_TENANT = re.compile(r"https?://[^/]+/([^/]+)/")

# Other spellings that object_store accepts for the settings that are completed here, or that Hadoop's settings give.
_SPELLINGS = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "token": "aws_session_token",
    "aws_token": "aws_session_token",
    "endpoint": "aws_endpoint",
    "endpoint_url": "aws_endpoint",
    "aws_endpoint_url": "aws_endpoint",
    "region": "aws_region",
    "aws_default_region": "aws_region",
}
# Settings and variables of the environment that have the address of a server, in all spellings.
_ENDPOINTS: dict[Store, tuple[str, ...]] = {
    Store.S3: (),
    Store.AZURE: ("azure_storage_endpoint", "azure_endpoint", "endpoint"),
    Store.GCS: ("google_base_url", "base_url"),
    Store.HDFS: (),
}
# delta-rs dropped its DynamoDB lock, and without a lock or a conditional put two writers overwrite each other's
# commits.
_REFUSED = {
    "aws_s3_locking_provider": "delta-rs no longer has a locking provider; commits need a store with conditional puts",
    "aws_s3_allow_unsafe_rename": "two writers would overwrite each other's commits",
}


def store_options(location: str, storage: Mapping[str, str], hadoop: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for the store of `location`, in object_store's names; empty for a local path.

    `storage` are options without their prefix `storage.`, `hadoop` settings in Hadoop's names; the former take
    precedence. Raises OptionError for a setting that is not supported.
    """
    store = store_of(location)
    if store is Store.LOCAL:
        if storage:
            raise OptionError(f"{STORAGE_PREFIX}{next(iter(storage))}", "it is for a table in an object store")
        return {}
    translate = {Store.S3: _s3, Store.GCS: _gcs, Store.AZURE: _azure, Store.HDFS: _hdfs}[store]
    settings = translate(location, {name.lower(): text for name, text in hadoop.items()})
    for name, text in storage.items():
        if name.lower() in _REFUSED:
            raise OptionError(f"{STORAGE_PREFIX}{name}", _REFUSED[name.lower()])
        spelling = name.lower()
        settings[_SPELLINGS.get(spelling, spelling) if store is Store.S3 else spelling] = text
    if store is Store.S3:
        _complete_s3(settings)
    endpoints = [settings.get(name) or os.environ.get(name.upper(), "") for name in _ENDPOINTS[store]]
    if any(endpoint.startswith("http://") for endpoint in endpoints):
        settings.setdefault("allow_http", "true")
    return settings


def hadoop_settings(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the `fs.` settings in `options`, whose names may have the prefix `spark.hadoop.`."""
    named = {name.removeprefix(SPARK_HADOOP_PREFIX): text for name, text in options}
    return {name: text for name, text in named.items() if name.startswith(HADOOP_PREFIX)}


def _s3(location: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    bucket = split_location(location)[0].removeprefix("s3://")
    own = f"fs.s3a.bucket.{bucket.lower()}."
    effective = dict(hadoop)
    effective |= {f"fs.s3a.{name.removeprefix(own)}": text for name, text in hadoop.items() if name.startswith(own)}
    settings = {ours: effective[name] for name, ours in S3_SETTINGS.items() if effective.get(name)}
    endpoint = settings.get("aws_endpoint")
    if endpoint and "://" not in endpoint:
        has_tls = effective.get(_TLS_SETTING, "true").lower() != "false"
        settings["aws_endpoint"] = f"{'https' if has_tls else 'http'}://{endpoint}"
    algorithm = settings.get("aws_server_side_encryption")
    if algorithm:
        settings["aws_server_side_encryption"] = _S3_ENCRYPTION.get(algorithm.lower(), algorithm)
    return settings


def _complete_s3(settings: dict[str, str]) -> None:
    endpoint = settings.get("aws_endpoint") or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
    if not endpoint:
        return
    if endpoint.startswith("http://"):
        settings.setdefault("aws_allow_http", "true")
    if "AWS_REGION" not in os.environ and "AWS_DEFAULT_REGION" not in os.environ:
        # Without a region delta-rs asks the metadata service of a cloud that a server with its own endpoint is not in.
        settings.setdefault("aws_region", "us-east-1")


def _gcs(_: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    return {ours: hadoop[name] for name, ours in GCS_SETTINGS.items() if hadoop.get(name)}


def _azure(location: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    host = split_location(location)[0].partition("@")[2].lower()
    settings = {"azure_storage_account_name": host.partition(".")[0]} if host else {}
    for name, ours in AZURE_SETTINGS.items():
        text = hadoop.get(f"{name}.{host}") or hadoop.get(name)
        if text:
            settings[ours] = text
    tenant = _TENANT.match(settings.get("azure_storage_tenant_id", ""))
    if tenant:
        settings["azure_storage_tenant_id"] = tenant[1]
    return settings


def _hdfs(_: str, __: Mapping[str, str]) -> dict[str, str]:
    """Return nothing: the client reads Hadoop's own files, core-site.xml and hdfs-site.xml in HADOOP_CONF_DIR."""
    return {}
