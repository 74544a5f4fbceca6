"""Settings of stores, from our options, from Hadoop's names and from a Spark session."""

import pickle
from typing import Any

import pytest
from pyspark import cloudpickle

from logbrook.spark.errors import OptionError
from logbrook.spark.tables.hadoop_settings import session_settings
from logbrook.spark.tables.source import TableDataSource, table_source
from logbrook.spark.tables.store_options import hadoop_settings, store_options

AZURE = "abfss://files@account.dfs.core.windows.net/t"
AZURE_HOST = "account.dfs.core.windows.net"


def test_hadoops_names_of_s3_settings_are_translated() -> None:
    hadoop = {
        "fs.s3a.access.key": "id",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.session.token": "token",
        "fs.s3a.endpoint": "store.internal:9000",
        "fs.s3a.endpoint.region": "eu-north-1",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.encryption.algorithm": "SSE-KMS",
        "fs.s3a.encryption.key": "arn:key",
        "fs.s3a.connection.maximum": "500",
        "fs.gs.auth.service.account.json.keyfile": "/other",
    }
    assert store_options("s3://bucket/t", {}, hadoop) == {
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_endpoint": "http://store.internal:9000",
        "aws_region": "eu-north-1",
        "aws_allow_http": "true",
        "aws_server_side_encryption": "aws:kms",
        "aws_sse_kms_key_id": "arn:key",
    }


def test_a_buckets_own_settings_and_our_options_take_precedence() -> None:
    hadoop = {
        "fs.s3a.access.key": "all",
        "fs.s3a.secret.key": "all",
        "fs.s3a.bucket.mine.access.key": "mine",
        "fs.s3a.bucket.other.access.key": "other",
    }
    assert store_options("s3://mine/t", {"SECRET_ACCESS_KEY": "option"}, hadoop) == {
        "aws_access_key_id": "mine",
        "aws_secret_access_key": "option",
    }


def test_without_settings_the_libraries_read_the_environment() -> None:
    assert store_options("s3://bucket/t", {}, {}) == {}
    assert store_options("/data/t", {}, {"fs.s3a.access.key": "id"}) == {}


def test_settings_of_google_and_azure_are_translated() -> None:
    key_file = {"fs.gs.auth.service.account.json.keyfile": "/etc/key.json"}
    assert store_options("gs://bucket/t", {}, key_file) == {"google_service_account": "/etc/key.json"}
    hadoop = {
        f"fs.azure.account.key.{AZURE_HOST}": "key",
        "fs.azure.account.key.other.dfs.core.windows.net": "other",
        f"fs.azure.account.oauth2.client.id.{AZURE_HOST}": "client",
        "fs.azure.account.oauth2.client.secret": "secret",
        f"fs.azure.account.oauth2.client.endpoint.{AZURE_HOST}": "https://login.microsoftonline.com/tenant/oauth2/token",
    }
    assert store_options(AZURE, {"timeout": "10s"}, hadoop) == {
        "azure_storage_account_name": "account",
        "azure_storage_account_key": "key",
        "azure_storage_client_id": "client",
        "azure_storage_client_secret": "secret",
        "azure_storage_tenant_id": "tenant",
        "timeout": "10s",
    }


def test_settings_of_hdfs_are_passed_on() -> None:
    settings = {"dfs.client.failover.max.attempts": "3"}
    assert store_options("hdfs://ns/t", settings, {"fs.s3a.access.key": "id"}) == settings


def test_an_http_endpoint_is_allowed_without_a_second_setting() -> None:
    settings = store_options(AZURE, {"azure_storage_endpoint": "http://127.0.0.1:10000/account"}, {})
    assert settings["allow_http"] == "true"
    google = store_options("gs://bucket/t", {"google_base_url": "http://127.0.0.1:4443"}, {})
    assert google["allow_http"] == "true"


def test_a_lock_that_does_not_exist_is_rejected() -> None:
    with pytest.raises(OptionError, match=r"'storage\.AWS_S3_ALLOW_UNSAFE_RENAME': two writers would overwrite"):
        store_options("s3://b/t", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}, {})


class HadoopConfiguration:
    """The methods of Hadoop's Configuration that are used."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def get(self, name: str) -> str | None:
        return self._settings.get(name)

    def getPropsWithPrefix(self, prefix: str) -> dict[str, str]:  # noqa: N802 - Hadoop's name
        return {name.removeprefix(prefix): text for name, text in self._settings.items() if name.startswith(prefix)}


class Session:
    """A session with Hadoop's configuration, or one of Spark Connect with settings only."""

    def __init__(self, hadoop: dict[str, str] | None = None, settings: dict[str, str] | None = None) -> None:
        if hadoop is not None:
            configuration = HadoopConfiguration(hadoop)
            java = type("JavaContext", (), {"hadoopConfiguration": lambda self: configuration})()
            self.sparkContext = type("Context", (), {"_jsc": java})()
        self.conf = type("Conf", (), {"getAll": settings or {}})()


def test_the_settings_of_a_session_are_read() -> None:
    settings = {
        "fs.s3a.access.key": "id",
        "fs.s3a.bucket.mine.secret.key": "secret",
        f"fs.azure.account.key.{AZURE_HOST}": "key",
    }
    session: Any = Session(hadoop={**settings, "fs.s3a.connection.ssl.enabled": "true", "io.file.buffer.size": "1"})
    assert session_settings(session) == settings
    connect: Any = Session(settings={"spark.hadoop.fs.s3a.access.key": "id", "spark.master": "local"})
    assert session_settings(connect) == {"fs.s3a.access.key": "id"}
    assert hadoop_settings([("fs.s3a.endpoint", "e"), ("dfs.x", "1")]) == {"fs.s3a.endpoint": "e"}


def test_the_settings_of_the_session_travel_with_the_registered_source() -> None:
    assert table_source({}) is TableDataSource
    registered = table_source({"fs.s3a.access.key": "session", "fs.s3a.secret.key": "session"})
    received = pickle.loads(cloudpickle.dumps(registered))  # type: ignore[no-untyped-call]
    source = received({"path": "s3://b/t", "fs.s3a.secret.key": "option"})
    assert source.name() == "logbrook_table"
    assert source._parsed().storage == {"aws_access_key_id": "session", "aws_secret_access_key": "option"}
