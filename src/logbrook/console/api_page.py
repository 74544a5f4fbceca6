"""The page about the HTTP API, made from its OpenAPI document.

The usual pages for that load their scripts from other hosts, and the console asks no other host for anything.
"""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h2{margin-top:2.5rem;border-bottom:1px solid #8886;text-transform:capitalize}
article{border:1px solid #8886;border-radius:.5rem;padding:.2rem 1rem 1rem;margin:1rem 0}
code,pre{font:14px/1.5 ui-monospace,monospace}pre{overflow:auto;background:#8882;padding:.7rem;border-radius:.4rem}
.verb{display:inline-block;min-width:4.2rem;font-weight:700}.get{color:#1976d2}.post{color:#2e7d32}.delete{color:#c62828}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}
a{color:#1976d2}.scroll{overflow-x:auto}
"""
_EXAMPLES = {
    "POST /topics": {"name": "orders", "partitions": 3},
    "POST /topics/{topic}/messages": {
        "records": [{"key": "42", "value": {"json": {"total": 9.5}}}, {"value": {"base64": "AAEC"}}]
    },
    "POST /groups/{group}/reset": {"to": "time", "at": "2026-01-31T12:00", "dry_run": True},
}
_NAMES = {"{topic}": "orders", "{group}": "billing"}


def page_of(document: Mapping[str, Any]) -> str:
    """A whole HTML document."""
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append(_article(verb.upper(), path, operation, document))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(articles)}" for tag, articles in by_tag.items())
    title = f"{document['info']['title']} HTTP API"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
        f"<body><p><a href='/'>← console</a></p><h1>{escape(title)}</h1><p>{escape(document['info']['description'])} "
        "The whole of it for programs: <a href='/api/openapi.json'>openapi.json</a>.</p>"
        "<p>Where the console has a token, send it with every call: "
        "<code>-H 'Authorization: Bearer TOKEN'</code>. A key or value is <code>null</code>, a text, or an object: "
        '<code>{"base64": "AAE="}</code> for bytes, and in requests <code>{"json": …}</code>. '
        'Errors are <code>{"error": {"code": …, "message": …}}</code>.</p>'
        f"{sections}</body></html>"
    )


def _article(verb: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(told)}</td></tr>"
        for name, kind, told in _fields(operation, document)
    )
    table = f"<div class=scroll><table>{rows}</table></div>" if rows else ""
    return (
        f"<article><h3><span class='verb {verb.lower()}'>{verb}</span> <code>/api{escape(path)}</code></h3>"
        f"<p>{escape(operation.get('description', ''))}</p>{table}<pre>{escape(_curl(verb, path))}</pre></article>"
    )


def _fields(operation: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for one in operation.get("parameters", ()):
        yield one["name"], f"in the {one['in']}", one.get("description", _default(one["schema"]))
    content = operation.get("requestBody", {}).get("content", {})
    for media in content.values():
        name = media["schema"].get("$ref", "").rpartition("/")[2]
        for field, schema in document["components"]["schemas"].get(name, {}).get("properties", {}).items():
            yield field, "in the body", _default(schema)


def _default(schema: Mapping[str, Any]) -> str:
    limits = [
        f"{word} {schema[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in schema
    ]
    if schema.get("default") not in (None, "", [], {}):
        limits.append(f"{json.dumps(schema['default'])} unless said otherwise")
    return ", ".join(limits)


def _curl(verb: str, path: str) -> str:
    for pattern, name in _NAMES.items():
        path_shown = path.replace(pattern, name)
        if path_shown != path:
            break
    else:
        path_shown = path
    query = "?from=end&limit=10" if (verb, path.rpartition("/")[2]) == ("GET", "messages") else ""
    call = f"curl {'' if verb == 'GET' else f'-X {verb} '}'http://127.0.0.1:9080/api{path_shown}{query}'"
    example = _EXAMPLES.get(f"{verb} {path}")
    return call if example is None else f"{call} --json '{json.dumps(example)}'"
