"""Options of values with a schema in a registry, parsed into `RegisteredFormat`.

value.format                            avro, protobuf or json
schema.registry.url                     one or several URLs, separated by commas
schema.registry.basic.auth.user.info    USER:PASSWORD; or in the URL
schema.registry.bearer.auth.token
schema.registry.ssl.ca.location         and ssl.certificate.location, ssl.key.location: PEM files
schema.registry.request.timeout.ms      10000
schema.registry.max.retries             5
value.subject                           <topic>-value
value.schema.version, value.schema.id   the version of the subject, or the id, to read with; the latest
value.schema                            the schema to read with; for json without a registry a DDL
value.message                           protobuf: the message of the schema; the first one
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.schemas.registry import LATEST_VERSION, RegistryConfig

REGISTERED_FORMATS = ("avro", "json", "protobuf")
_PREFIX = "schema.registry."
REGISTRY_URL = f"{_PREFIX}url"
_USER_INFO, _TOKEN = f"{_PREFIX}basic.auth.user.info", f"{_PREFIX}bearer.auth.token"
_FILES = tuple(f"{_PREFIX}ssl.{name}.location" for name in ("ca", "certificate", "key"))
_TIMEOUT, _RETRIES = f"{_PREFIX}request.timeout.ms", f"{_PREFIX}max.retries"
_SCHEMA_OPTIONS = ("value.subject", "value.schema.version", "value.schema.id", "value.message")


@dataclass(frozen=True, slots=True)
class RegisteredFormat:
    """`value.format` with a schema registry. The reader's schema is `schema_text`, or else one of the registry."""

    format: str
    registry: RegistryConfig
    subject: str | None = None
    version: str = LATEST_VERSION
    schema_id: int | None = None
    schema_text: str | None = None
    message: str | None = None


def read_registered_format(options: OptionReader, format_: str, *, is_read: bool = True) -> RegisteredFormat | None:
    """Return the format of values if a registry is given, else None. Raises OptionError."""
    registry = _read_registry(options)
    texts = {name: options.text(name) for name in _SCHEMA_OPTIONS}
    if registry is None:
        given = [name for name, text in texts.items() if text is not None]
        if given:
            raise OptionError(given[0], f"it needs {REGISTRY_URL!r}")
        if format_ not in ("binary", "json"):
            raise OptionError("value.format", f"{format_} needs {REGISTRY_URL!r}")
        return None
    if format_ not in REGISTERED_FORMATS:
        raise OptionError(REGISTRY_URL, f"it needs 'value.format', {' or '.join(REGISTERED_FORMATS)}")
    given_schema = options.only_one_of("value.schema", "value.schema.id", "value.schema.version")
    is_without_subject = given_schema == "value.schema.id" or (is_read and given_schema == "value.schema")
    if is_without_subject and texts["value.subject"] is not None:
        raise OptionError("value.subject", f"it cannot be given together with {given_schema!r}")
    message = options.text("value.message")
    if message is not None and format_ != "protobuf":
        raise OptionError("value.message", "it is for 'value.format' protobuf")
    version = texts["value.schema.version"] or LATEST_VERSION
    if version != LATEST_VERSION:
        options.integer("value.schema.version", None, at_least=1)
    return RegisteredFormat(
        format=format_,
        registry=registry,
        subject=texts["value.subject"],
        version=version,
        schema_id=options.integer("value.schema.id", None, at_least=0),
        schema_text=options.text("value.schema"),
        message=message,
    )


def _read_registry(options: OptionReader) -> RegistryConfig | None:
    text = options.text(REGISTRY_URL)
    urls = tuple(url.strip().rstrip("/") for url in (text or "").split(",") if url.strip())
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(REGISTRY_URL, f"{url.rpartition('@')[2]!r} is not a URL such as http://127.0.0.1:8081")
    user_info, token = options.text(_USER_INFO), options.text(_TOKEN)
    ca_file, certificate_file, key_file = (options.text(name) for name in _FILES)
    timeout_ms, retries = options.integer(_TIMEOUT, None, at_least=1), options.integer(_RETRIES, None, at_least=0)
    if not urls:
        given = [name for name in (_USER_INFO, _TOKEN, *_FILES, _TIMEOUT, _RETRIES) if options.text(name) is not None]
        if given:
            raise OptionError(given[0], f"it needs {REGISTRY_URL!r}")
        return None
    options.only_one_of(_USER_INFO, _TOKEN)
    if user_info is not None and ":" not in user_info:
        raise OptionError(_USER_INFO, "it must be USER:PASSWORD")
    defaults = RegistryConfig(urls)
    return RegistryConfig(
        urls,
        user_info,
        token,
        ca_file,
        certificate_file,
        key_file,
        timeout_s=defaults.timeout_s if timeout_ms is None else timeout_ms / 1000,
        retries=defaults.retries if retries is None else retries,
    )
