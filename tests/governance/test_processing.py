"""The record of processing is drawn from the register, and says how long everything stays."""

import json

import pytest
from django.core.management import call_command

from governance.domain import processing, registry, retention


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
