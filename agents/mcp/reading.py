"""What a server says, made into texts and rows. Nothing of it is trusted: sizes, forms and names are checked."""

import json
from typing import Any

import jsonschema
from mcp import Client
from mcp_types import CallToolResult, ReadResourceResult

from agents.mcp.naming import offered_name
from agents.mcp.targets import Listing, McpFailed
from governance.text import clean, clean_json

MAX_TOOLS, MAX_RESOURCES, MAX_PAGES = 200, 500, 20
MAX_NAME, MAX_DESCRIPTION, MAX_SCHEMA = 128, 2_000, 20_000
MAX_URI = 2_000
# The loop cuts a result to what the agent may read; this bounds what is carried there.
MAX_TEXT = 2_000_000


def text_of(result: CallToolResult) -> str:
    """A result as the model reads it: its texts, else its structured content; what is no text is named."""
    parts = [_block(block) for block in result.content]
    if not any(parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    return clean("\n".join(part for part in parts if part))[:MAX_TEXT]


def text_of_resource(result: ReadResourceResult) -> str:
    """Raises McpFailed when there is no text in it."""
    texts = [content.text for content in result.contents if getattr(content, "text", None) is not None]
    if not texts:
        raise McpFailed("mcp_no_text", "It is no text.")
    return clean("\n".join(texts))[:MAX_TEXT]


def short(text: str) -> str:
    return clean(text)[:500]


def _block(block: Any) -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource":
        text = getattr(block.resource, "text", None)
        return text if text is not None else f"[{block.resource.uri}: {getattr(block.resource, 'mime_type', None) or 'bytes'}, not shown]"
    if block.type == "resource_link":
        return f"[{block.name}: {block.uri}]"
    return f"[{block.type} {getattr(block, 'mime_type', '')}, not shown]"


async def listing_of(server: str, client: Client) -> Listing:
    """All tools and resources that can be used. A server without one of both offers none of it."""
    capabilities = client.server_capabilities
    left_out: list[str] = []
    tools = await _pages(client.list_tools, "tools") if capabilities and capabilities.tools is not None else []
    resources, templates = [], []
    if capabilities and capabilities.resources is not None:
        resources = await _pages(client.list_resources, "resources")
        templates = await _pages(client.list_resource_templates, "resource_templates")
    kept = _tools(server, tools, left_out)
    found = [_resource(entry, str(entry.uri), False) for entry in resources]
    found += [_resource(entry, entry.uri_template, True) for entry in templates]
    usable = [entry for entry in found if len(entry["uri"]) <= MAX_URI][:MAX_RESOURCES]
    if len(usable) < len(found):
        left_out.append(f"{len(found) - len(usable)} resources more than can be kept.")
    return Listing(kept, usable, left_out, short(client.instructions or ""))


async def _pages(ask: Any, name: str) -> list[Any]:
    found, cursor = [], None
    for _ in range(MAX_PAGES):
        page = await ask(cursor=cursor)
        found += getattr(page, name)
        cursor = page.next_cursor
        if not cursor or len(found) > MAX_RESOURCES:
            break
    return found


def _tools(server: str, tools: list[Any], left_out: list[str]) -> list[dict[str, Any]]:
    kept: dict[str, dict[str, Any]] = {}
    for tool in tools:
        problem = _problem(tool)
        offered = offered_name(server, tool.name)
        if problem is None and offered in kept:
            problem = "its name cannot be told from another tool's"
        if problem is None and len(kept) >= MAX_TOOLS:
            problem = f"there are more than {MAX_TOOLS}"
        if problem is not None:
            left_out.append(f"The tool {clean(tool.name)[:80]} is left out: {problem}.")
            continue
        hints = tool.annotations
        kept[offered] = {
            "name": tool.name,
            "offered": offered,
            "description": clean(tool.description or tool.title or "")[:MAX_DESCRIPTION],
            "schema": clean_json(tool.input_schema),
            "reads": bool(hints and hints.read_only_hint),
        }
    return list(kept.values())


def _problem(tool: Any) -> str | None:
    if not tool.name or len(tool.name) > MAX_NAME or clean(tool.name) != tool.name:
        return "its name cannot be used"
    try:
        if len(json.dumps(tool.input_schema, allow_nan=False)) > MAX_SCHEMA:
            return "its schema is too long"
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
    except (ValueError, TypeError, RecursionError, jsonschema.SchemaError):
        return "its schema is not valid"
    return None if tool.input_schema.get("type") == "object" else "its schema is no object"


def _resource(entry: Any, uri: str, is_template: bool) -> dict[str, Any]:
    found = {"uri": clean(uri), "name": clean(entry.name or "")[:200], "description": short(entry.description or ""), "mime_type": (entry.mime_type or "")[:100]}
    return {**found, "is_template": True} if is_template else found
