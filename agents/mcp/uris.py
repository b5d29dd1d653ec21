"""References to texts of MCP servers, as definitions write them: `server:uri`."""

import re


def split(reference: str) -> tuple[str, str]:
    """("docs", "file:///a") of "docs:file:///a"."""
    server, _, uri = reference.partition(":")
    return server, uri


def declares(resources: list[dict], uri: str) -> bool:
    """Whether a server lists this text, itself or by a template (RFC 6570, where {x} stands for a part of the path)."""
    return any(
        _fits(entry["uri"], uri) if entry.get("is_template") else entry["uri"] == uri for entry in resources
    )


def _fits(template: str, uri: str) -> bool:
    pieces = re.split(r"(\{[^{}]*\})", template)
    pattern = "".join((".+" if piece[1:2] in ("+", "#", "/") else "[^/]+") if piece.startswith("{") else re.escape(piece) for piece in pieces)
    return re.fullmatch(pattern, uri) is not None
