"""The documentation page of the HTTP API, generated from its OpenAPI document.

The usual viewers (Swagger UI, ReDoc) load scripts from other hosts; the console must work without any.
"""

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h2{margin-top:2.5rem;border-bottom:1px solid #8886;text-transform:capitalize}
article{border:1px solid #8886;border-radius:.5rem;padding:.2rem 1rem 1rem;margin:1rem 0}
code,pre{font:14px/1.5 ui-monospace,monospace}pre{overflow:auto;background:#8882;padding:.7rem;border-radius:.4rem}
.verb{display:inline-block;min-width:4.2rem;font-weight:700}.get{color:#1976d2}.post,.patch{color:#2e7d32}.delete{color:#c62828}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}
td:nth-child(2){white-space:nowrap}
a{color:#1976d2}.scroll{overflow-x:auto}
@media(prefers-color-scheme:dark){.get,a{color:#64b5f6}.post,.patch{color:#81c784}.delete{color:#ef9a9a}}
@media(max-width:599px){td{display:inline;padding:0 .5rem 0 0}td:nth-child(2){opacity:.7}
td:nth-child(3){display:block;padding-bottom:.6rem}}
"""
_EXAMPLES = {
    "POST /topics": {"name": "orders", "partitions": 3},
    "PATCH /topics/{topic}/settings": {"retention.ms": 86_400_000, "cleanup.policy": None},
    "POST /topics/{topic}/partitions": {"count": 6},
    "POST /topics/{topic}/trim": {"to": "time", "at": "2026-01-31T12:00", "dry_run": True},
    "POST /topics/{topic}/messages": {
        "records": [
            {"key": "42", "value": {"json": {"total": 9.5}}, "headers": {"origin": "shop"}},
            {"value": {"base64": "AAEC"}},
        ]
    },
    "POST /groups/{group}/reset": {"to": "time", "at": "2026-01-31T12:00", "dry_run": True},
}
_CODE = re.compile(r"`([^`]+)`")
_NAMES = {"{topic}": "orders", "{group}": "billing"}


def api_docs_page(document: Mapping[str, Any]) -> str:
    """Return a complete HTML document."""
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
        "For programs: <a href='/api/openapi.json'>openapi.json</a>.</p>"
        "<p>If the console has a login, send your password (<code>curl -u alice</code>) or a token "
        "(<code>-H 'Authorization: Bearer TOKEN'</code>) with every request. "
        "A key or value is <code>null</code>, a string, or an object: "
        '<code>{"base64": "AAE="}</code> for bytes, and in requests <code>{"json": …}</code>. '
        'Errors are <code>{"error": {"code": …, "message": …}}</code>.</p>'
        f"{sections}</body></html>"
    )


def _article(verb: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{_html(description)}</td></tr>"
        for name, kind, description in _fields(operation, document)
    )
    table = f"<div class=scroll><table>{rows}</table></div>" if rows else ""
    paragraphs = "".join(f"<p>{_html(text)}</p>" for text in operation.get("description", "").split("\n\n"))
    return (
        f"<article><h3><span class='verb {verb.lower()}'>{verb}</span> <code>/api{escape(path)}</code></h3>"
        f"{paragraphs}{table}<pre>{escape(_curl(verb, path))}</pre></article>"
    )


def _html(text: str) -> str:
    """Escape a text, with names in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _fields(operation: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, place and description of each parameter and each field of the body."""
    for parameter in operation.get("parameters", ()):
        yield parameter["name"], f"in the {parameter['in']}", _description(parameter["schema"], parameter)
    content = operation.get("requestBody", {}).get("content", {})
    for media in content.values():
        schema = media["schema"]
        if "$ref" not in schema:
            yield "", "the body", _description(schema, schema)
        yield from _body_fields(schema, document, "")


def _body_fields(schema: Mapping[str, Any], document: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    model = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
    for name, field in model.get("properties", {}).items():
        yield prefix + name, "in the body", _description(field, field)
        if "items" in field:
            yield from _body_fields(field["items"], document, f"{prefix}{name}[].")


def _description(schema: Mapping[str, Any], described: Mapping[str, Any]) -> str:
    """Return the description with the limits and the default of a parameter or field."""
    limits = [
        f"{word} {schema[key]:g}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in schema
    ]
    if schema.get("default") not in (None, "", [], {}):
        limits.append(f"default {json.dumps(schema['default'])}")
    text = str(described.get("description", ""))
    return f"{text} ({', '.join(limits)})".strip() if limits else text


def _curl(verb: str, path: str) -> str:
    path_shown = path
    for pattern, name in _NAMES.items():
        path_shown = path_shown.replace(pattern, name)
    query = "?from=end&limit=10" if (verb, path.rpartition("/")[2]) == ("GET", "messages") else ""
    call = f"curl {'' if verb == 'GET' else f'-X {verb} '}'http://127.0.0.1:9080/api{path_shown}{query}'"
    example = _EXAMPLES.get(f"{verb} {path}")
    return call if example is None else f"{call} --json '{json.dumps(example)}'"
