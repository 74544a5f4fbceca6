"""Locations of tables and checkpoints: a path, or a URI with a scheme.

A URI begins with a scheme and a colon, with or without an authority: `s3://bucket/t`, `file:/data/t`. A text whose
first colon comes after a slash is a path; write `./a:b` for a directory with a colon in its name.

Every scheme is supported or refused by its name: a scheme that were taken for a path would write the table to a local
directory called `dbfs:`. `STORES` is the only list of supported schemes.

The location of a table is canonical: an absolute path, or a URI without a trailing slash, with the store's usual scheme
(`s3://` for Hadoop's `s3a://`). The location of a file is its table's location, a slash and a name, so `os.path.join`
works for both.
"""

import os
import re
from enum import Enum
from urllib.parse import unquote

from logbrook.spark.errors import OptionError


class Store(Enum):
    """The kind of store that a location is in; the value is the scheme of its canonical form."""

    LOCAL = "file"
    S3 = "s3"
    GCS = "gs"
    AZURE = "abfss"
    HDFS = "hdfs"


STORES = {
    "file": Store.LOCAL,
    "s3": Store.S3,
    "s3a": Store.S3,
    "gs": Store.GCS,
    "abfs": Store.AZURE,
    "abfss": Store.AZURE,
    "hdfs": Store.HDFS,
}
_EXAMPLES = {
    Store.S3: "s3://bucket/path",
    Store.GCS: "gs://bucket/path",
    Store.AZURE: "abfss://container@account.dfs.core.windows.net/path",
    Store.HDFS: "hdfs://namenode:8020/path",
}
# RFC 3986, section 3.1.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LOCAL_HOSTS = ("", "localhost")
# delta-rs parses a location as a URL and the other libraries do not: these characters would mean different files.
_AMBIGUOUS = re.compile(r"[%?#\\]")


def scheme_of(text: str) -> str | None:
    """Return the lower-case scheme of a URI, or None for a path."""
    match = _SCHEME.match(text)
    return match[1].lower() if match else None


def parse_location(text: str, option: str = "path") -> str:
    """Return the canonical location of a path or URI. Raises OptionError for one that is not supported."""
    scheme = scheme_of(text)
    if scheme is None:
        return os.path.abspath(text)
    if scheme not in STORES:
        raise OptionError(
            option,
            f"{text!r} has the scheme {scheme!r}, which is not supported; write a path of a directory that every "
            f"executor can access, or a URI with one of {', '.join(STORES)}{_hint(text)}",
        )
    store = STORES[scheme]
    return _file_path(text, option) if store is Store.LOCAL else _store_location(text, store, option)


def canonical_location(location: str) -> str:
    """Return a location in the metadata of a table, as another program may have written it, in canonical form."""
    scheme = scheme_of(location)
    if scheme is None or scheme == "file":
        return location.removeprefix("file://").removeprefix("file:")
    store = STORES.get(scheme)
    return location if store is None else f"{store.value}:{location.partition(':')[2]}"


def store_of(location: str) -> Store:
    """Return the store of a canonical location."""
    scheme = scheme_of(location)
    return Store.LOCAL if scheme is None else STORES[scheme]


def split_location(location: str) -> tuple[str, str]:
    """Return the root of the store, such as `s3://bucket`, and the path inside it without a leading slash."""
    scheme, _, rest = location.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}", path


def relative_to(location: str, root: str) -> str:
    """Return the name of a file below `root`."""
    assert location.startswith(root), f"{location} is not below {root}"
    return location[len(root) :].lstrip("/")


def resolve_beside(directory: str, text: str) -> str:
    """Return a URI unchanged, and a path as an absolute one, relative to `directory`."""
    return text if scheme_of(text) is not None else os.path.normpath(os.path.join(directory, text))


def _file_path(text: str, option: str) -> str:
    rest = text.partition(":")[2]
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", rest[:1], rest[1:])
    if slash != "/" or host.lower() not in _LOCAL_HOSTS:
        raise OptionError(option, f"{text!r} is not a local file; write file: and an absolute path, such as file:/data")
    return os.path.normpath(f"/{unquote(path).lstrip('/')}")


def _store_location(text: str, store: Store, option: str) -> str:
    rest = text.partition(":")[2]
    host, _, path = rest[2:].partition("/")
    if not rest.startswith("//") or not host:
        raise OptionError(option, f"{text!r} does not name the store; write {_EXAMPLES[store]}{_hint(text)}")
    names = [name for name in path.split("/") if name]
    if not names:
        raise OptionError(option, f"{text!r} is a whole store, and a table needs a directory: {_EXAMPLES[store]}")
    if _AMBIGUOUS.search(path) or not {".", ".."}.isdisjoint(names):
        raise OptionError(option, f"{text!r} must not contain %, ?, # or a backslash, nor the names . and ..")
    return "/".join([f"{store.value}://{host}", *names])


def _hint(text: str) -> str:
    """Return how to write a directory that has a colon in its name, if `text` may be meant as one."""
    return "" if "/" in text.partition(":")[2][:1] else f"; a directory of that name is './{text}'"
