"""The record of processing is drawn from the register, and says how long everything stays."""

import json

import pytest
from django.core.management import call_command

from governance.domain import processing, registry, retention
from tests.factories import agents as catalogue
from tests.factories import sessions as talk


def test_record_names_every_category_with_purpose_period_and_end(tenant):
    record = processing.record(tenant=tenant)

    assert (record["schema"], record["controller"]) == ("lethe.art30/1", "Acme")
    assert [entry["key"] for entry in record["activities"]] == list(registry.categories())
    for entry in record["activities"]:
        assert entry["purposes"], entry["key"]
        assert entry["legal_basis"], entry["key"]
        assert all(len(period) > 10 for period in entry["periods"]), entry["key"]


def test_policy_of_the_tenant_is_its_period(tenant, stranger_tenant, records_manager):
    retention.create_policy(tenant_id=tenant.id, category="sessions", days=90, age_basis="ended", action="delete", by=records_manager)

    def periods(of):
        return next(entry for entry in processing.record(tenant=of)["activities"] if entry["key"] == "sessions")["periods"]

    assert periods(tenant) == ["Rows are deleted 90 days after they ended."]
    assert periods(stranger_tenant)[0].startswith("No fixed period.")


def test_record_names_mcp_servers_and_web_searches(tenant, stranger_tenant):
    catalogue.mcp_server(tenant, "crm", url="https://crm.example/mcp?key=s3cret")
    catalogue.mcp_server(tenant, "off", is_disabled=True)
    catalogue.mcp_server(stranger_tenant, "theirs")
    for name in ("openai", "plain"):
        talk.provider(tenant, "openai", name=name)
    talk.provider(tenant, name="demo")
    searching = {"name": "finder", "model": {"provider": "openai", "model": "gpt"}, "harness": {"enable_web_search": True}}
    talk.agent(tenant, "finder", document=searching)

    record = processing.record(tenant=tenant)

    assert [(entry["kind"], entry["name"], entry["address"]) for entry in record["recipients"]] == [
        ("provider of models", "openai", ""),
        ("web search of a provider", "openai", ""),
        ("provider of models", "plain", ""),
        ("MCP server", "crm", "crm.example"),
    ]
    assert "- MCP server: crm (crm.example)" in processing.markdown(record)
    items = next(entry for entry in record["activities"] if entry["key"] == "items")
    assert "the MCP servers whose tools the agent calls" in items["recipients"]


def test_command_writes_markdown_and_json(tenant, capsys):
    call_command("art30_record", "--tenant", tenant.slug)
    text = capsys.readouterr().out
    call_command("art30_record", "--tenant", tenant.slug, "--json")
    record = json.loads(capsys.readouterr().out)

    assert text.startswith("# Record of processing activities: Acme")
    assert "## Attachments (`blobs`)" in text
    assert len(record["activities"]) == len(registry.categories())
    with pytest.raises(SystemExit):
        call_command("art30_record", "--tenant", "nobody")
