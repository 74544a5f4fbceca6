"""The client of a schema registry."""

import pickle
import socket

import pytest

from logbrook.client import RetryPolicy
from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.schemas import registry as registry_module
from logbrook.spark.schemas.errors import RegistryError, UnknownSchemaError, UnreachableRegistryError
from logbrook.spark.schemas.options import RegisteredFormat, read_registered_format
from logbrook.spark.schemas.registry import RegisteredSchema, RegistryConfig, SchemaRegistry
from logbrook.testing.schema_registry import InMemoryRegistry

URL = {"schema.registry.url": "http://here:8081"}


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "RetryPolicy", lambda **limits: RetryPolicy(**limits | {"backoff_s": 0.001}))


def client(server: InMemoryRegistry, **config: object) -> SchemaRegistry:
    return SchemaRegistry(RegistryConfig((server.url,), **config))  # type: ignore[arg-type]


def test_a_schema_is_asked_for_once() -> None:
    with InMemoryRegistry() as server:
        schema_id = server.register("s", '"int"')
        registry = client(server)
        assert [registry.schema(schema_id) for _ in range(3)] == [RegisteredSchema(schema_id, "AVRO", '"int"')] * 3
        assert server.requests == [f"GET /schemas/ids/{schema_id}"]


def test_versions_and_registration() -> None:
    with InMemoryRegistry() as server:
        registry = client(server)
        first = registry.register("a/b c", '"int"')
        second = registry.register("a/b c", '{"type": "object"}', "JSON")
        assert registry.register("a/b c", '"int"') == first != second
        assert registry.version("a/b c") == RegisteredSchema(second, "JSON", '{"type": "object"}')
        assert registry.version("a/b c", "1") == RegisteredSchema(first, "AVRO", '"int"')
        assert registry.look_up("a/b c", '"int"') == first
        with pytest.raises(UnknownSchemaError, match="Schema not found"):
            registry.look_up("a/b c", '"long"')


def test_referenced_schemas_come_with_the_schema_dependencies_first() -> None:
    with InMemoryRegistry() as server:
        server.register("base", '"base"')
        base = {"name": "base.x", "subject": "base", "version": 1}
        server.register("middle", '"middle"', references=[base])
        middle = {"name": "middle.y", "subject": "middle", "version": 1}
        top = server.register("top", '"top"', references=[middle, base])
        assert client(server).schema(top).references == (("base.x", '"base"'), ("middle.y", '"middle"'))


def test_the_error_names_the_missing_schema() -> None:
    with InMemoryRegistry() as server:
        server.register("s", '"int"')
        registry = client(server)
        with pytest.raises(UnknownSchemaError) as error:
            registry.schema(17)
        assert str(error.value) == f"the schema registry at {server.url}: there is no schema 17"
        with pytest.raises(UnknownSchemaError, match="there is no version latest of the subject 'other'"):
            registry.version("other")
        with pytest.raises(UnknownSchemaError, match="there is no version 2 of the subject 's'"):
            registry.version("s", "2")


def test_a_server_error_is_tried_again() -> None:
    with InMemoryRegistry() as server:
        schema_id = server.register("s", '"int"')
        server.fail_next(500, 503, 429)
        assert client(server, retries=3).schema(schema_id).text == '"int"'
        server.fail_next(500, 500)
        with pytest.raises(UnreachableRegistryError, match="it answers 500 Internal Server Error"):
            client(server, retries=1).schema(schema_id)


def test_other_errors_are_final() -> None:
    with InMemoryRegistry() as server:
        schema_id = server.register("s", '"int"')
        server.fail_next(422)
        with pytest.raises(RegistryError, match="it answers 422 Error in the backend data store"):
            client(server).schema(schema_id)
        assert len(server.requests) == 1


def test_another_url_is_used_when_one_is_away() -> None:
    with socket.socket() as unused, InMemoryRegistry() as server:
        unused.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{unused.getsockname()[1]}"
        schema_id = server.register("s", '"int"')
        registry = SchemaRegistry(RegistryConfig((away, server.url), retries=1))
        assert registry.schema(schema_id).text == '"int"'
        reason = rf"^the schema registry at {away}: it cannot be asked: .*refused"
        with pytest.raises(UnreachableRegistryError, match=reason):
            SchemaRegistry(RegistryConfig((away,), retries=1)).schema(schema_id)


def test_credentials_are_sent_and_never_shown() -> None:
    with InMemoryRegistry("me:pa:ss@word") as server:
        schema_id = server.register("s", '"int"')
        with pytest.raises(RegistryError, match="it answers 401 Unauthorized"):
            client(server).schema(schema_id)
        assert client(server, user_info="me:pa:ss@word").schema(schema_id).text == '"int"'
        in_url = RegistryConfig((server.url.replace("//", "//me:pa%3Ass%40word@"),))
        assert SchemaRegistry(in_url).schema(schema_id).text == '"int"'
        assert in_url.address == server.url
        assert "word" not in repr(RegistryConfig((server.url,), "me:pa:ss@word", "pass-word"))


def test_the_path_of_the_url_is_a_prefix() -> None:
    with InMemoryRegistry() as server:
        config = RegistryConfig((f"{server.url}/apis/ccompat/v7",), retries=0)
        with pytest.raises(UnknownSchemaError):
            SchemaRegistry(config).schema(1)
        assert server.requests == ["GET /apis/ccompat/v7/schemas/ids/1"]


def registered(format_: str = "avro", **options: str) -> RegisteredFormat | None:
    texts = URL | {name.replace("__", "."): text for name, text in options.items()}
    return read_registered_format(OptionReader(texts), format_)


def test_every_option_of_the_registry_is_read() -> None:
    assert registered() == RegisteredFormat("avro", RegistryConfig(("http://here:8081",)))
    format_ = registered(
        schema__registry__url="https://a/, http://b:1/x",
        schema__registry__basic__auth__user__info="u:p",
        schema__registry__ssl__ca__location="ca.pem",
        schema__registry__ssl__certificate__location="c.pem",
        schema__registry__ssl__key__location="k.pem",
        schema__registry__request__timeout__ms="1500",
        schema__registry__max__retries="0",
        value__subject="orders",
        value__schema__version="3",
    )
    config = RegistryConfig(("https://a", "http://b:1/x"), "u:p", None, "ca.pem", "c.pem", "k.pem", 1.5, 0)
    assert format_ == RegisteredFormat("avro", config, "orders", "3")
    assert pickle.loads(pickle.dumps(format_)) == format_
    token = registered(schema__registry__bearer__auth__token="t", value__schema__id="7")
    assert token is not None
    assert (token.registry.token, token.schema_id) == ("t", 7)
    assert registered("json", value__schema="{}") == RegisteredFormat(
        "json", RegistryConfig(("http://here:8081",)), schema_text="{}"
    )


@pytest.mark.parametrize(
    ("format_", "options", "message"),
    [
        ("avro", {"schema__registry__url": "here:8081"}, "option 'schema.registry.url': 'here:8081' is not a URL"),
        ("binary", {}, "option 'schema.registry.url': it needs 'value.format', avro or json or protobuf"),
        ("avro", {"schema__registry__basic__auth__user__info": "u"}, "it must be USER:PASSWORD"),
        ("avro", {"value__message": "M"}, "option 'value.message': it is for 'value.format' protobuf"),
        ("avro", {"value__schema__version": "0"}, "option 'value.schema.version': it must be at least 1"),
        ("avro", {"value__schema__version": "x"}, "option 'value.schema.version': 'x' is not a whole number"),
        ("avro", {"value__schema": "x", "value__schema__id": "1"}, "'value.schema.id': it cannot be given together"),
        ("avro", {"value__subject": "x", "value__schema__id": "1"}, "'value.subject': it cannot be given together"),
    ],
)
def test_options_that_contradict_each_other_are_refused(format_: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        registered(format_, **options)


@pytest.mark.parametrize("name", ["value.subject", "value.schema.id", "schema.registry.max.retries"])
def test_options_of_a_registry_need_its_url(name: str) -> None:
    with pytest.raises(OptionError, match=f"^option '{name}': it needs 'schema.registry.url'$"):
        read_registered_format(OptionReader({name: "1"}), "json")
    with pytest.raises(OptionError, match=r"^option 'value.format': avro needs 'schema.registry.url'$"):
        read_registered_format(OptionReader({}), "avro")
