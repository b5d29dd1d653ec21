"""The frame: navigation, palette, errors, and that nothing is open without signing in."""

import json
import re

import pytest
from django.test import Client
from django.urls import get_resolver, reverse
from django.urls.exceptions import NoReverseMatch

from agents import schema
from console import navigation
from governance.ids import shown
from governance.models import Membership
from governance.permissions import PERMISSIONS
from tests.factories import governance, sessions

pytestmark = pytest.mark.django_db

# Open to everybody: signing in and out, the probes of whoever watches the server, and addresses that are permissions.
OPEN = {"sign-in", "sign-out", "healthz", "readyz", "archive-link"}
# Values that fit every page's address: all that matters is that nobody gets as far as looking them up.
ARGUMENTS = {"ref": "x", "name": "x", "seq": 1, "number": 1, "sha256": "0" * 64, "category": "x", "part": 1, "agent_name": "x", "path": "x"}


def pages():
    """(name, address) of every page: what the URL map knows and the API does not answer."""
    for pattern in get_resolver().url_patterns:
        name = getattr(pattern, "name", None)
        if not name or str(pattern.pattern).startswith(("api/", "v1/")):
            continue
        wanted = re.findall(r"<\w+:(\w+)>", str(pattern.pattern))
        try:
            yield name, reverse(name, kwargs={key: ARGUMENTS.get(key, "x") for key in wanted})
        except NoReverseMatch as error:
            raise AssertionError(f"Say which arguments fit {pattern.pattern}.") from error


def test_every_page_sends_strangers_to_sign_in(client):
    seen = []
    for name, address in pages():
        if name in OPEN:
            continue
        for method in (client.get, client.post):
            response = method(address)
            assert response.status_code == 302, (name, response.status_code)
            assert response.url.startswith(reverse("sign-in") + "?next="), name
        seen.append(name)

    assert len(seen) > 60


def test_every_page_asks_for_a_permission(tenant, sign_in):
    """A member whose roles allow nothing gets no page but the own account, help, and the error pages."""
    client = sign_in(tenant, "viewer")
    Membership.objects.filter(pk=client.membership.pk).update(roles=["privacy_approver"])
    allowed_to_all = OPEN | {"account", "prove", "change-password", "switch-tenant", "palette", "help", "help-definition", "help-permissions", "help-categories"}
    allowed_to_approvers = {"subjects", "subject", "requests", "request", "request-progress", "request-receipt", "request-archive", "retention", "policy", "policy-runs", "holds", "hold", "audit", "audit-export", "unattributed", "unattributed-rows"}

    opened = {name for name, address in pages() if client.get(address).status_code == 200} - allowed_to_all

    assert opened <= allowed_to_approvers


def test_navigation_lists_only_pages_that_exist_and_says_why_some_are_closed(viewer):
    page = viewer.get(reverse("overview"))

    groups = {str(group.title): [str(item.label) for item in group.items] for group in page.context["navigation"]}
    assert groups["Govern"] == ["Subjects", "Unattributed rows", "Requests", "Retention", "Holds", "Audit"]
    closed = {str(item.label): str(item.reason) for group in page.context["navigation"] for item in group.items if item.reason}
    assert closed["Subjects"] == "Needs the role privacy officer or privacy approver."
    assert "Sessions" not in closed


def test_navigation_names_only_known_permissions():
    assert {page.permission for _title, entries in navigation.GROUPS for page in entries} <= set(PERMISSIONS)


def test_navigation_counts_what_waits(owner, tenant):
    sessions.approval(sessions.run(sessions.agent(tenant), status="awaiting_approval"))

    page = owner.get(reverse("account")).content.decode()

    assert re.search(r'Approvals <span class="n">1<span class="visually-hidden"> waiting', page)


def test_navigation_marks_the_current_page(owner):
    page = owner.get(reverse("member-new")).content.decode()

    assert re.findall(r'<a href="([^"]+)" aria-current="page">', page) == [reverse("members")]


# The palette


def find(client, words):
    return json.loads(client.post(reverse("palette"), {"q": words}).content)["results"]


def test_palette_finds_agents_sessions_runs_and_subjects(owner, tenant):
    agent = sessions.agent(tenant, "research")
    session = sessions.session(agent, key="case-4182")
    run = sessions.run(agent, session)
    subject = governance.subject(tenant, "customer-7")

    assert [entry["label"] for entry in find(owner, "case-41")] == ["case-4182"]
    assert find(owner, "case-41")[0]["url"] == reverse("session", args=[shown("ses", session.pk)])
    assert [entry["kind"] for entry in find(owner, shown("run", run.pk))] == ["Run"]
    assert [entry["label"] for entry in find(owner, subject.display_ref.lower())] == [subject.display_ref]


def test_palette_never_finds_a_person_by_identifier(owner, tenant):
    governance.subject(tenant, "customer-7")

    assert find(owner, "customer-7") == []


def test_palette_shows_nothing_of_another_tenant_or_without_permission(owner, stranger, sign_in, tenant):
    session = sessions.session(sessions.agent(tenant, "research"), key="case-4182")
    run = sessions.run(session.agent, session)

    assert find(stranger, "case-4182") == find(stranger, shown("run", run.pk)) == []
    assert find(sign_in(tenant, "auditor"), "case-4182") == []


def test_palette_needs_two_letters(owner, tenant):
    sessions.session(sessions.agent(tenant, "research"), key="case-4182")

    assert find(owner, "c") == []


# Errors


def test_unknown_address_is_a_page_of_ours(owner, client):
    for browser in (owner, client):
        response = browser.get("/no-such-page")
        assert response.status_code == 404
        assert "data-problem" in response.content.decode()


def test_missing_role_says_which(viewer):
    response = viewer.get(reverse("audit"))

    assert response.status_code == 403
    assert "This needs the role" in response.content.decode()


def test_form_without_its_token_is_refused_with_a_way_out(tenant):
    browser = Client(enforce_csrf_checks=True)
    member = governance.member(tenant)

    response = browser.post(reverse("sign-in"), {"username": member.username, "password": governance.PASSWORD})

    assert response.status_code == 403
    assert "Send that again" in response.content.decode()


def test_broken_page_says_that_it_is_our_fault_and_where_to_look(owner, monkeypatch):
    owner.raise_request_exception = False
    monkeypatch.setattr("console.navigation.groups_for", lambda request: 1 / 0)

    response = owner.get(reverse("account"))

    assert response.status_code == 500
    assert response["X-Request-ID"] in response.content.decode()


def test_wrong_host_is_refused_without_a_trace(owner):
    response = owner.get(reverse("account"), headers={"host": "evil.example"})

    assert response.status_code == 400
    assert "Not understood" in response.content.decode()


# What pages are made of


def test_pages_have_no_inline_style_script_or_handler(owner, tenant):
    sessions.run(sessions.agent(tenant, "research"))
    for name in ("overview", "members", "member-new", "keys", "key-new", "quotas", "quota-new", "tenant", "audit", "tools", "subjects", "unattributed", "requests", "retention", "policy-new", "holds", "hold-new", "account", "change-password", "help", "help-definition", "help-permissions", "help-categories"):
        page = owner.get(reverse(name)).content.decode()
        assert not re.search(r"<[^>]+\sstyle=", page), name
        assert not re.search(r"<[^>]+\son[a-z]+=", page), name
        assert not re.search(r"<script(?![^>]*\ssrc=)", page), name
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", page), name


def test_policy_of_content_allows_only_ourselves(owner):
    policy = owner.get(reverse("account"))["Content-Security-Policy"]

    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    assert re.search(r"script-src 'self' 'nonce-[^']+'", policy)


def test_pages_are_compressed_and_not_kept_by_others(owner):
    page = owner.get(reverse("account"), headers={"Accept-Encoding": "gzip"})

    assert page["Content-Encoding"] == "gzip"
    assert page["Cache-Control"] == "private, no-cache"


def test_gallery_is_for_staff(sign_in, tenant, owner):
    staff = sign_in(tenant, "viewer", is_staff=True)

    assert owner.get(reverse("gallery")).status_code == 403
    assert staff.get(reverse("gallery")).status_code == 200


def test_help_lists_every_setting_and_permission(owner):
    settings = owner.get(reverse("help-definition")).content.decode()
    table = owner.get(reverse("help-permissions")).content.decode()

    assert all(f'id="{section.key}"' in settings for section in schema.sections())
    assert all(f">{name}<" in table for name in PERMISSIONS)


def test_tools_are_listed_with_schema_and_effect(viewer):
    page = viewer.get(reverse("tools"))
    found = viewer.get(reverse("tools"), {"q": "no such tool"}, headers={"HX-Request": "true"}).content.decode()

    assert all(tool.name in page.content.decode() for tool in page.context["tools"])
    assert page.context["tools"]
    assert "No tool matches" in found
