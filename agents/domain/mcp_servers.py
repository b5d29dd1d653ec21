"""MCP servers: where they are, what agents may use of them, and looking at what they offer."""

import asyncio
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils import timezone

from agents import addresses
from agents.domain import egress
from agents.domain.definitions import check_tenant
from agents.errors import AddressUnknown, EgressRefused, McpServerExists, McpServerInUse, McpServerInvalid
from agents.mcp.naming import MAX_SERVER_NAME, SEPARATOR, SERVER_NAME, server_of
from agents.mcp.targets import Listing, McpFailed, Target
from agents.models import Agent, McpServer
from agents.tools import is_reserved
from governance.actors import Actor
from governance.domain import audit, protection, rotation
from governance.errors import NotFound
from governance.text import clean

MOST_SECONDS = 600
_CHANGEABLE = (
    "url", "command", "args", "secrets", "tool_filter", "reading_tools", "asks_approval", "timeout_s", "is_disabled",
)  # fmt: skip
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# Headers that belong to the protocol, or to HTTP itself.
_OURS = frozenset(
    ["accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)
# A program's own search path and libraries decide what runs.
_NOT_SET = re.compile(r"PATH|HOME|LD_.*|DYLD_.*|PYTHON.*|NODE_OPTIONS|BASH_ENV|ENV|IFS")


@transaction.atomic
def create_server(*, tenant_id: UUID, by: Actor, name: str, transport: str = "http", **values: Any) -> McpServer:
    """A new server. `values` are those of `update_server`. Raises McpServerInvalid by field, McpServerExists and
    EgressRefused. What it offers is not known until it is checked."""
    check_tenant(tenant_id, by, "providers.write")
    server = McpServer(tenant_id=tenant_id, name=name, transport=transport)
    errors = _name_and_transport(name, transport)
    known = {key: value for key, value in values.items() if key in _CHANGEABLE}
    errors |= {key: ["There is no such setting."] for key in values if key not in _CHANGEABLE}
    errors |= _apply(server, {"url": "", "command": "", **known} if not errors else {})
    if errors:
        raise McpServerInvalid(errors=errors)
    _check_address(server, host_may_be_unknown=True)
    try:
        with transaction.atomic():
            server.save(force_insert=True)
    except IntegrityError:
        raise McpServerExists(name) from None
    _record("mcp_server.created", server, by, transport=transport)
    return _fresh(server)


@transaction.atomic
def update_server(*, server: McpServer, by: Actor, **changes: Any) -> McpServer:
    """Change what is given: url, command, args, secrets ({name: value}, the whole set), tool_filter, reading_tools,
    asks_approval, timeout_s, is_disabled.

    Name and transport stay. Another host or program needs the secrets again, so that nobody can have stored ones sent
    elsewhere; and what the old one offered is forgotten.
    """
    server = _locked(server, by)
    errors = {name: ["This cannot be changed."] for name in changes if name not in _CHANGEABLE}
    before, had_secrets = _place(server), bool(server.secrets_enc)
    errors |= _apply(server, {name: value for name, value in changes.items() if name in _CHANGEABLE})
    moved = _place(server) != before
    if moved and had_secrets and "secrets" not in changes:
        errors["secrets"] = ["Enter the secrets again: they were given for another address."]
    if errors:
        raise McpServerInvalid(errors=errors)
    if "url" in changes:
        _check_address(server, host_may_be_unknown=True)
    if moved:
        server.tools, server.resources, server.last_check = [], [], None
    server.updated_at = Now()
    server.save()
    _record("mcp_server.updated", server, by, fields=sorted(changes))
    if "secrets" in changes:
        _record("mcp_server.secrets_changed", server, by)
    return _fresh(server)


@transaction.atomic
def delete_server(*, server: McpServer, by: Actor) -> None:
    """Raises McpServerInUse while the published version of an agent names one of its tools or texts."""
    server = _locked(server, by)
    if agents := agents_using(server):
        raise McpServerInUse(server.name, agents)
    _record("mcp_server.deleted", server, by)
    server.delete()


def agents_using(server: McpServer) -> list[str]:
    """Names of the agents whose published version names a tool or a text of the server."""
    at = "published__document"
    rows = Agent.objects.of(server.tenant_id).exclude(published=None).order_by("name")
    found = rows.values_list("name", f"{at}__tools", f"{at}__mcp_resource_uris")
    return [
        name
        for name, tools, uris in found
        if any(tool.startswith(f"{server.name}{SEPARATOR}") for tool in tools or [])
        or any(uri.startswith(f"{server.name}:") for uri in uris or [])
    ]


def target_of(server: McpServer) -> Target:
    """Where calls go, secrets opened. Raises McpFailed when the server is switched off or may not be reached."""
    if server.is_disabled:
        raise McpFailed("mcp_disabled", f"The MCP server {server.name} is switched off.")
    try:
        check_egress(server)
    except (AddressUnknown, EgressRefused) as error:
        raise McpFailed(error.code, error.detail) from None
    return Target(
        key=f"{server.pk.hex}:{server.updated_at.isoformat()}", name=server.name, transport=server.transport, url=server.url,
        command=server.command, args=tuple(server.args), secrets=secrets_of(server), timeout=float(server.timeout_s),
    )  # fmt: skip


def check_egress(server: McpServer) -> None:
    """Whether the server may be called now. Raises EgressRefused, or AddressUnknown. Asked again before a run, because a
    name can point elsewhere by then, and the operator may have changed what programs may run."""
    _check_address(server, host_may_be_unknown=False)


def secrets_of(server: McpServer) -> dict[str, str]:
    if not server.secrets_enc:
        return {}
    plain = protection.decrypt(server.secrets_enc, tenant_id=server.tenant_id, context=_context(server))
    return json.loads(plain)


def check_server(*, server: McpServer, by: Actor) -> McpServer:
    """Connect, ask what the server offers, and keep the answer. What is wrong with it is in `last_check`; tools that
    were known stay known when it does not answer. Takes up to a minute."""
    check_tenant(server.tenant_id, by, "providers.write")
    started = time.monotonic()
    try:
        listing, failed = _listed(target_of(server)), None
    except McpFailed as error:
        listing, failed = None, error
    check = {
        "ok": failed is None, "code": failed.code if failed else None, "message": failed.message if failed else "",
        "latency_ms": max(1, int((time.monotonic() - started) * 1000)), "left_out": listing.left_out[:50] if listing else [],
        "at": timezone.now().isoformat(),
    }  # fmt: skip
    with transaction.atomic():
        kept = {} if listing is None else {"tools": listing.tools, "resources": listing.resources}
        # Unless it was moved meanwhile: what the old address offers says nothing about the new one.
        rows = McpServer.objects.filter(pk=server.pk, tenant_id=by.tenant_id, updated_at=server.updated_at)
        if not rows.update(last_check=check, **kept):
            raise NotFound
        _record("mcp_server.checked", server, by, ok=check["ok"], code=check["code"] or "", tools=len(listing.tools) if listing else 0)
    return _fresh(server)


def _listed(target: Target) -> Listing:
    # A loop of its own, in a thread of its own: the caller may be inside one.
    with ThreadPoolExecutor(1, thread_name_prefix="lethe-mcp") as thread:
        return thread.submit(asyncio.run, _ask(target)).result()


async def _ask(target: Target) -> Listing:
    from agents.mcp import pool  # noqa: PLC0415 -- a second, which only those pay who connect

    try:
        return await pool.list_all(target)
    finally:
        await pool.close_all()


# --- Reading what was given -----------------------------------------------------------------------------------------


def _name_and_transport(name: Any, transport: Any) -> dict[str, list[str]]:
    errors = {}
    if not isinstance(name, str) or len(name) > MAX_SERVER_NAME or not re.fullmatch(SERVER_NAME, name):
        errors["name"] = [f"Use 1 to {MAX_SERVER_NAME} letters, digits, - and single _."]
    elif is_reserved(f"{name}{SEPARATOR}x") or server_of(f"{name}{SEPARATOR}x") != name:
        errors["name"] = ["This beginning is kept for Lethe's own tools."]
    if transport not in McpServer.Transport.values:
        errors["transport"] = [f"Choose one of {', '.join(McpServer.Transport.values)}."]
    return errors


def _apply(server: McpServer, changes: dict[str, Any]) -> dict[str, list[str]]:
    """Set the fields. Returns what is wrong, by field."""
    errors: dict[str, list[str]] = {}
    if "url" in changes:
        server.url = str(changes["url"] or "").strip()
        if problem := _url_problem(server):
            errors["url"] = [problem]
    if "command" in changes:
        server.command = clean(str(changes["command"] or "")).strip()
        if problem := _command_problem(server):
            errors["command"] = [problem]
    if "args" in changes:
        server.args = _texts(changes["args"], 50, 500, errors, "args")
        if server.args and server.transport != "stdio":
            errors["args"] = ["Only a program has arguments."]
    for name in ("tool_filter", "reading_tools"):
        if name in changes:
            setattr(server, name, [text for text in _texts(changes[name], 200, 130, errors, name) if text])
    if "secrets" in changes:
        _apply_secrets(server, changes["secrets"], errors)
    if "timeout_s" in changes:
        server.timeout_s = changes["timeout_s"] or 30
        if isinstance(server.timeout_s, bool) or not isinstance(server.timeout_s, int) or not 1 <= server.timeout_s <= MOST_SECONDS:
            errors["timeout_s"] = [f"Enter a whole number of seconds from 1 to {MOST_SECONDS}."]
    for name in ("asks_approval", "is_disabled"):
        if name in changes:
            setattr(server, name, bool(changes[name]))
    return errors


def _url_problem(server: McpServer) -> str | None:
    if server.transport != "http":
        return "A program has no address." if server.url else None
    if not server.url:
        return "Enter the server's address, for example https://tools.example.com/mcp."
    return "This is longer than 500 characters." if len(server.url) > 500 else addresses.problem_of_url(server.url)


def _command_problem(server: McpServer) -> str | None:
    if server.transport != "stdio":
        return "A server over HTTP has no program." if server.command else None
    allowed = settings.LETHE["mcp_commands"]
    if not allowed:
        return "The operator has allowed no programs on this machine (LETHE_MCP_COMMANDS)."
    return None if server.command in allowed else f"Choose one of the programs that the operator allows: {', '.join(allowed)}."


def _texts(given: Any, most: int, longest: int, errors: dict, name: str) -> list[str]:
    if not isinstance(given, list | tuple) or len(given) > most or not all(isinstance(text, str) for text in given):
        errors[name] = [f"This is a list of texts, {most} at most."]
        return []
    texts = [clean(text).strip() for text in given]
    if any(len(text) > longest for text in texts):
        errors[name] = [f"Each is at most {longest} characters long."]
    return texts


def _apply_secrets(server: McpServer, given: Any, errors: dict) -> None:
    if not isinstance(given, dict) or len(given) > 50:
        errors["secrets"] = ["This is an object of names and values, 50 at most."]
        return
    form = _HEADER if server.transport == "http" else _VARIABLE
    for name, value in given.items():
        refused = str(name).lower() in _OURS or str(name).lower().startswith("mcp-") if form is _HEADER else _NOT_SET.fullmatch(str(name))
        if not form.fullmatch(str(name)) or refused:
            errors[f"secrets.{name}"] = ["This name cannot be set."]
        elif not isinstance(value, str) or len(value) > 4000 or not value.isascii() or not value.isprintable():
            errors[f"secrets.{name}"] = ["A value is one line of plain characters."]
    if any(path.startswith("secrets") for path in errors):
        return
    plain = json.dumps(given).encode()
    server.secrets_enc = protection.encrypt(plain, tenant_id=server.tenant_id, context=_context(server)) if given else None
    server.secret_names = sorted(given)


def _sealed_secrets(server: McpServer) -> rotation.Sealed | None:
    if not server.secrets_enc:
        return None
    return rotation.Sealed(server.tenant_id, _context(server), server.secrets_enc, lambda data, _plain: {"secrets_enc": data})


rotation.register(rotation.Store("secrets of MCP servers", McpServer.objects.all, _sealed_secrets))


# --- Shared by the verbs --------------------------------------------------------------------------------------------


def _place(server: McpServer) -> tuple:
    """What secrets were given for: scheme, host and port, or the program with its arguments."""
    if server.transport == "stdio":
        return server.command, *server.args
    parts = urlsplit(server.url)
    return parts.scheme, parts.hostname, parts.port


def _check_address(server: McpServer, *, host_may_be_unknown: bool) -> None:
    if server.transport == "stdio":
        if problem := _command_problem(server):
            raise EgressRefused(problem)
        return
    host = (urlsplit(server.url).hostname or "").lower().rstrip(".")
    egress.check(
        tenant_id=server.tenant_id, host=host, is_own=True, host_may_be_unknown=host_may_be_unknown, who="MCP servers"
    )


def _locked(server: McpServer, by: Actor) -> McpServer:
    check_tenant(server.tenant_id, by, "providers.write")
    locked = McpServer.objects.select_for_update().filter(pk=server.pk, tenant_id=by.tenant_id).first()
    if locked is None:
        raise NotFound
    return locked


def _fresh(server: McpServer) -> McpServer:
    server.refresh_from_db()
    return server


def _context(server: McpServer) -> str:
    return f"mcp_server:{server.pk.hex}"


def _record(action: str, server: McpServer, by: Actor, **payload: Any) -> None:
    audit.record(action, by=by, object_type="mcp_server", object_ref=server.pk, object_label=server.name, **payload)
