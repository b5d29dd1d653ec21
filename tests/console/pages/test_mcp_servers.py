import pytest
from django.urls import reverse

from agents.domain import mcp_servers
from agents.models import McpServer
from tests.factories import agents

pytestmark = pytest.mark.django_db
FORM = {"name": "docs", "transport": "http", "url": "https://192.0.2.7/mcp", "timeout_s": "20", "asks_approval": "on"}


@pytest.fixture(autouse=True)
def open_network(settings):
    settings.LETHE = {**settings.LETHE, "allow_private_providers": True}


@pytest.fixture
def server(tenant):
    return agents.mcp_server(tenant, tools=[agents.mcp_tool("docs", "read"), agents.mcp_tool("docs", "drop")], tool_filter=["read"])


def test_server_is_added_with_its_headers(owner, tenant):
    response = owner.post(reverse("mcp-server-new"), {**FORM, "secrets": "Authorization: Bearer a:b\n\nX-Team: blue", "tool_filter": "read_*\nlist"})

    made = McpServer.objects.get(tenant=tenant)
    assert response.url == reverse("mcp-server", args=["docs"])
    assert mcp_servers.secrets_of(made) == {"Authorization": "Bearer a:b", "X-Team": "blue"}
    assert (made.tool_filter, made.asks_approval, made.timeout_s) == (["read_*", "list"], True, 20)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"url": "nothing"}, "url"), ({"secrets": "no colon"}, "secrets"), ({"secrets": "Host: x"}, "secrets"), ({"transport": "stdio", "url": "", "command": "ls"}, "command")],
)
def test_server_that_cannot_be_is_said_at_the_field(owner, change, field):
    response = owner.post(reverse("mcp-server-new"), FORM | change)

    assert (response.status_code, list(response.context["form"].errors)) == (422, [field])


def test_secrets_never_come_back_and_stay_when_the_field_is_empty(owner, tenant):
    owner.post(reverse("mcp-server-new"), {**FORM, "secrets": "X-Key: s3cret"})
    pages = [owner.get(reverse(name, args=["docs"])).content.decode() for name in ("mcp-server", "mcp-server-edit")]
    owner.post(reverse("mcp-server-edit", args=["docs"]), {"url": FORM["url"], "timeout_s": "9"})
    kept = McpServer.objects.get(tenant=tenant)
    owner.post(reverse("mcp-server-edit", args=["docs"]), {"url": FORM["url"], "timeout_s": "9", "forget_secrets": "on"})

    assert all("s3cret" not in page and "X-Key" in page for page in pages)
    assert (mcp_servers.secrets_of(kept), kept.timeout_s, kept.asks_approval) == ({"X-Key": "s3cret"}, 9, False)
    assert mcp_servers.secrets_of(McpServer.objects.get(tenant=tenant)) == {}


def test_page_shows_what_can_be_used(owner, server):
    page = owner.get(reverse("mcp-server", args=["docs"])).content.decode()

    assert "1 of 2 can be used" in page
    assert "docs__read" in page
    assert "filtered out" in page


def test_check_that_fails_says_why(owner, tenant, server):
    McpServer.objects.filter(pk=server.pk).update(url="http://127.0.0.1:9/mcp")

    page = owner.post(reverse("mcp-server-check", args=["docs"]), follow=True).content.decode()

    assert page.count("The MCP server docs cannot be reached, or does not speak MCP.") >= 1
    assert "unreachable" in page
    assert "docs__read" in page


def test_editor_offers_its_tools(owner, tenant, server):
    agents.draft(tenant, "desk")

    page = owner.get(reverse("agent-edit", args=["desk"])).content.decode()

    assert 'value="docs__read"' in page
    assert "docs__drop" not in page


def test_server_in_use_is_not_deleted(owner, tenant, server):
    agents.published(tenant, "desk", tools=["docs__read"])
    owner.post(reverse("mcp-server-delete", args=["docs"]))

    assert McpServer.objects.filter(pk=server.pk).exists()


def test_unused_server_is_deleted(owner, server):
    assert owner.post(reverse("mcp-server-delete", args=["docs"])).url == reverse("mcp-servers")
    assert not McpServer.objects.exists()


def test_list_costs_the_same_for_three(owner, tenant, queries_of, server):
    before = queries_of(owner, reverse("mcp-servers"))
    agents.mcp_server(tenant, "two")
    agents.mcp_server(tenant, "three")

    assert queries_of(owner, reverse("mcp-servers")) == before


def test_list_is_empty_at_first(owner):
    assert b"No MCP servers yet" in owner.get(reverse("mcp-servers")).content


@pytest.mark.parametrize("name", ["mcp-server", "mcp-server-edit", "mcp-server-check", "mcp-server-delete"])
def test_server_of_another_tenant_is_not_there(stranger, server, name):
    method = stranger.get if name in ("mcp-server", "mcp-server-edit") else stranger.post

    assert method(reverse(name, args=["docs"])).status_code == 404


def test_viewer_reads_and_changes_nothing(viewer, server):
    assert viewer.get(reverse("mcp-server", args=["docs"])).status_code == 200
    assert viewer.get(reverse("mcp-server-edit", args=["docs"])).status_code == 403
    assert viewer.post(reverse("mcp-server-check", args=["docs"])).status_code == 403
