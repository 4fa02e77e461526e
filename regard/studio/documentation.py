"""The schema of the service as one plain page: every route with its fields, in the order of the API it belongs to."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class FieldRow:
    """One field of a request."""

    name: str
    kind: str
    needed: bool
    does: str


@dataclass(frozen=True)
class Operation:
    """One route with one method."""

    method: str
    path: str
    does: str
    fields: tuple[FieldRow, ...]

    @property
    def anchor(self) -> str:
        return f"{self.method}-{self.path.strip('/').replace('/', '-') or 'root'}".replace("{", "").replace("}", "")


def documentation_page(schema: dict[str, Any]) -> str:
    """The page as HTML; without scripts, and with one style sheet of our own."""
    template = _environment().get_template("documentation.html")
    about = schema["info"]
    return template.render(title=about["title"], version=about["version"], groups=operations_of(schema))


def operations_of(schema: dict[str, Any]) -> dict[str, list[Operation]]:
    """Return every route of the schema, in groups by the API that it belongs to."""
    groups: dict[str, list[Operation]] = {}
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            group = (about.get("tags") or ["others"])[0]
            groups.setdefault(group, []).append(_operation(schema, path, method.upper(), about))
    return groups


@cache
def _environment() -> Environment:
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def _operation(schema: dict[str, Any], path: str, method: str, about: dict[str, Any]) -> Operation:
    fields = [
        FieldRow(each["name"], _kind(schema, each.get("schema", {})), bool(each.get("required")), _place(each))
        for each in about.get("parameters", ())
    ]
    contents = about.get("requestBody", {}).get("content", {})
    body = _resolved(schema, next((each["schema"] for each in contents.values()), {}))
    needed = set(body.get("required", ()))
    for name, each in body.get("properties", {}).items():
        fields.append(FieldRow(name, _kind(schema, each), name in needed, each.get("description", "")))
    return Operation(method, path, about.get("description") or about.get("summary", ""), tuple(fields))


def _place(parameter: dict[str, Any]) -> str:
    """The description of a field outside of the body, and where it stands."""
    where = f"in the {parameter['in']}"
    return f"{parameter['description']} ({where})" if parameter.get("description") else where


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        part = schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    return part


def _kind(schema: dict[str, Any], part: dict[str, Any]) -> str:
    """The kind of a value in a few words: "text", "number", "list of text", "text or null"."""
    part = _resolved(schema, part)
    if several := part.get("anyOf") or part.get("oneOf"):
        return " or ".join(dict.fromkeys(_kind(schema, each) for each in several))
    if "const" in part or "enum" in part:
        return " | ".join(html.unescape(str(value)) for value in part.get("enum", [part.get("const")]))
    if part.get("type") == "array":
        return f"list of {_kind(schema, part.get('items', {}))}"
    known = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "null": "null",
    }
    return known.get(str(part.get("type")), "object" if part.get("type") == "object" else "anything")
