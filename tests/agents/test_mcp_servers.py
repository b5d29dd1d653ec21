"""Rows of MCP servers: what may be entered, what is checked, what definitions may name of them."""

import sys

import pytest

from agents.compile import compile_definition
from agents.domain import definitions, mcp_servers, providers
from agents.errors import EgressRefused, McpServerExists, McpServerInUse, McpServerInvalid
from agents.mcp.targets import McpFailed
from agents.models import McpServer
from governance.actors import system
from governance.domain import rotation
from governance.errors import MissingPermission, NotFound
from governance.models import AuditEvent
from tests.factories import agents
from tests.wire.mcp_process import ARGS, ROOT, http_server

URL = "https://192.0.2.7/mcp"


@pytest.fixture
def open_network(settings):
    """The operator allows private addresses and one program."""
    settings.LETHE = {**settings.LETHE, "allow_private_providers": True, "mcp_commands": [sys.executable]}


@pytest.fixture
def create(tenant, builder, open_network):
    def make(name="docs", **values):
        return mcp_servers.create_server(tenant_id=tenant.id, by=builder, name=name, **{"url": URL, **values})

    return make


def test_secrets_are_encrypted_and_only_their_names_are_kept(create):
    server = create(secrets={"Authorization": "Bearer abc-123", "X-Team": "blue"})

    assert mcp_servers.secrets_of(server) == {"Authorization": "Bearer abc-123", "X-Team": "blue"}
    assert server.secret_names == ["Authorization", "X-Team"]
    assert b"abc-123" not in bytes(server.secrets_enc)
    assert "secrets of MCP servers" in rotation._stores


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"name": ""}, "name"),
        ({"name": "a__b"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "x" * 33}, "name"),
        ({"name": "mcp_docs"}, "name"),
        ({"name": "skill"}, "name"),
        ({"transport": "pigeon"}, "transport"),
        ({"url": ""}, "url"),
        ({"url": "ftp://x.example.com"}, "url"),
        ({"url": "https://name:pass@x.example.com/"}, "url"),
        ({"command": "ls"}, "command"),
        ({"args": ["-l"]}, "args"),
        ({"secrets": {"Host": "x"}}, "secrets.Host"),
        ({"secrets": {"Mcp-Session-Id": "x"}}, "secrets.Mcp-Session-Id"),
        ({"secrets": {"a b": "x"}}, "secrets.a b"),
        ({"secrets": {"X-A": "two\nlines"}}, "secrets.X-A"),
        ({"timeout_s": 601}, "timeout_s"),
        ({"tool_filter": "read"}, "tool_filter"),
        ({"transport": "stdio", "url": "", "command": "/bin/sh"}, "command"),
        ({"transport": "stdio", "url": "", "command": sys.executable, "secrets": {"LD_PRELOAD": "x"}}, "secrets.LD_PRELOAD"),
        ({"color": "red"}, "color"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_their_field(create, values, path):
    with pytest.raises(McpServerInvalid) as caught:
        create(**values)

    assert list(caught.value.errors) == [path]


def test_programs_are_the_operators_decision(create, settings, tenant, builder):
    server = create("tools", transport="stdio", url="", command=sys.executable, args=["-V"])
    settings.LETHE = {**settings.LETHE, "mcp_commands": []}

    with pytest.raises(McpServerInvalid, match="settings"):
        create("more", transport="stdio", url="", command=sys.executable)
    with pytest.raises(McpFailed, match="LETHE_MCP_COMMANDS"):
        mcp_servers.target_of(server)


def test_private_address_and_unlisted_host_are_refused(tenant, builder, settings):
    settings.LETHE = {**settings.LETHE, "allow_private_providers": False}
    with pytest.raises(EgressRefused, match="private network"):
        mcp_servers.create_server(tenant_id=tenant.id, by=builder, name="inner", url="http://127.0.0.1:9/mcp")

    providers.set_egress(tenant_id=tenant.id, hosts=["*.example.com"], by=builder)
    with pytest.raises(EgressRefused, match="This tenant's MCP servers may not reach tools.example.org"):
        mcp_servers.create_server(tenant_id=tenant.id, by=builder, name="other", url="https://tools.example.org/mcp")


def test_moved_server_needs_its_secrets_again_and_forgets_what_it_offered(create, builder):
    server = create(secrets={"X-Key": "k"})
    McpServer.objects.filter(pk=server.pk).update(tools=[agents.mcp_tool("docs", "read")], last_check={"ok": True})

    with pytest.raises(McpServerInvalid) as caught:
        mcp_servers.update_server(server=server, by=builder, url="https://192.0.2.8/mcp")
    moved = mcp_servers.update_server(server=server, by=builder, url="https://192.0.2.8/mcp", secrets={"X-Key": "new"})

    assert list(caught.value.errors) == ["secrets"]
    assert (moved.tools, moved.last_check, mcp_servers.secrets_of(moved)) == ([], None, {"X-Key": "new"})


def test_name_is_taken_once_and_trail_tells(create, tenant, builder):
    server = create()
    with pytest.raises(McpServerExists):
        create()
    mcp_servers.update_server(server=server, by=builder, secrets={"X-A": "b"})
    mcp_servers.delete_server(server=server, by=builder)

    told = AuditEvent.objects.filter(tenant_id=tenant.id, object_type="mcp_server").order_by("id").values_list("action", flat=True)
    assert list(told) == ["mcp_server.created", "mcp_server.updated", "mcp_server.secrets_changed", "mcp_server.deleted"]


def test_server_of_another_tenant_does_not_exist(create, stranger, viewer):
    server = create()
    by = system(stranger.id, "stranger")

    with pytest.raises(NotFound):
        mcp_servers.update_server(server=server, by=by, timeout_s=5)
    with pytest.raises(NotFound):
        mcp_servers.check_server(server=server, by=by)
    with pytest.raises(MissingPermission):
        mcp_servers.delete_server(server=server, by=viewer)


def test_server_in_use_is_kept(create, tenant, demo, builder):
    server = create()
    McpServer.objects.filter(pk=server.pk).update(tools=[agents.mcp_tool("docs", "read")], last_check={"ok": True})
    agent = agents.published(tenant, "desk", tools=["docs__read"])

    with pytest.raises(McpServerInUse, match="desk"):
        mcp_servers.delete_server(server=server, by=builder)
    definitions.save_draft(agent=agent, document=agents.document("desk"), expected=1, by=builder)
    definitions.publish(agent=agent, by=builder)
    mcp_servers.delete_server(server=server, by=builder)

    assert not McpServer.objects.exists()


# --- Looking at a server that runs -----------------------------------------------------------------------------------


def test_check_keeps_what_the_server_offers(create, builder):
    with http_server() as web:
        server = mcp_servers.check_server(server=create("helpful", url=web.url), by=builder)

    assert (server.last_check["ok"], server.is_reachable) == (True, True)
    assert {"helpful__add", "helpful__echo"} <= {tool["offered"] for tool in server.tools}
    assert "docs://readme" in {entry["uri"] for entry in server.resources}


def test_check_of_a_program(create, builder):
    server = create(
        "local", transport="stdio", url="", command=sys.executable, args=[*ARGS, "stdio"],
    )  # fmt: skip
    # PYTHONPATH cannot be set by a builder; the test starts where the module is.
    failed = mcp_servers.check_server(server=server, by=builder)
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['x', 'stdio']; import tests.wire.mcp_server as m; m.main()"
    server = mcp_servers.update_server(server=failed, by=builder, args=["-c", script])
    server = mcp_servers.check_server(server=server, by=builder)

    assert (failed.last_check["code"], failed.tools) == ("mcp_unreachable", [])
    assert server.last_check["ok"]
    assert "local__add" in {tool["offered"] for tool in server.tools}


def test_server_that_is_gone_keeps_its_tools_and_says_so(create, builder):
    with http_server() as web:
        server = mcp_servers.check_server(server=create("helpful", url=web.url), by=builder)
    known = server.tools

    server = mcp_servers.check_server(server=server, by=builder)

    assert (server.last_check["ok"], server.last_check["code"], server.tools) == (False, "mcp_unreachable", known)


# --- In definitions --------------------------------------------------------------------------------------------------


@pytest.fixture
def found(tenant, demo):
    def check(**changes):
        report = compile_definition(agents.document("mine", **changes), tenant_id=tenant.id)
        messages = {(entry.severity, entry.path, entry.code) for entry in report.messages}
        return messages - {("info", "tool_settings", "uncapped_tool_output")}, report.inconclusive

    return check


def test_tools_of_a_reachable_server_are_judged(tenant, found):
    tools = [agents.mcp_tool("docs", "read"), agents.mcp_tool("docs", "write")]
    agents.mcp_server(tenant, tools=tools, tool_filter=["re*"])
    agents.mcp_server(tenant, "off", is_disabled=True)

    assert found(tools=["docs__read"]) == (set(), False)
    assert found(tools=["docs__reed", "docs__write", "other__x", "off__x"]) == (
        {
            ("error", "tools.0", "unknown_tool"),
            ("error", "tools.1", "unknown_tool"),
            ("error", "tools.2", "unknown_tool"),
            ("error", "tools.3", "mcp_server_disabled"),
        },
        False,
    )
    assert found(tools=["docs__read"], tool_settings={"docs__read": {"approval": "never"}}) == (
        {("warning", "tool_settings.docs__read.approval", "external_without_approval")},
        False,
    )


@pytest.mark.parametrize("reachable", [False, None])
def test_tools_of_an_unreachable_server_are_not_judged(tenant, found, reachable):
    agents.mcp_server(tenant, reachable=reachable)

    assert found(tools=["docs__anything"]) == ({("warning", "tools.0", "mcp_server_unreachable")}, True)
    assert found(mcp_resource_uris=["docs:docs://x"]) == ({("warning", "mcp_resource_uris.0", "mcp_server_unreachable")}, True)


def test_texts_of_a_server(tenant, found):
    agents.mcp_server(tenant, resources=[{"uri": "docs://a", "name": "A"}])
    agents.mcp_server(tenant, "off", is_disabled=True)

    assert found(mcp_resource_uris=["docs:docs://a"]) == (set(), False)
    assert found(mcp_resource_uris=["docs:docs://b", "other:x", "off:x"]) == (
        {
            ("warning", "mcp_resource_uris.0", "undeclared_resource"),
            ("error", "mcp_resource_uris.1", "unknown_mcp_server"),
            ("error", "mcp_resource_uris.2", "mcp_server_disabled"),
        },
        False,
    )


def test_servers_of_another_tenant_are_unknown(stranger, found):
    agents.mcp_server(stranger, tools=[agents.mcp_tool("docs", "read")])

    assert found(tools=["docs__read"])[0] == {("error", "tools.0", "unknown_tool")}


def test_definition_without_servers_asks_for_none(tenant, demo, django_assert_num_queries):
    with django_assert_num_queries(1):
        compile_definition(agents.document("mine", tools=["calculate"]), tenant_id=tenant.id)
    with django_assert_num_queries(2):
        compile_definition(agents.document("mine", tools=["a__b"], mcp_resource_uris=["a:b"]), tenant_id=tenant.id)
