"""The frame in a real browser: signing in, both themes, the keyboard, narrow windows, and no page with a barrier."""

import gzip
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.contrib.staticfiles import finders
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from console.context_report import LAYERS
from governance.domain import exports, keys, members, previews, requests, retention
from governance.ids import shown
from governance.models import Export, Member
from sessions.domain import quotas
from tests.browser.conftest import sign_in
from tests.factories import agents as agent_factories
from tests.factories import governance, sessions

NARROW = {"viewport": {"width": 360, "height": 780}}
# WCAG 2.2 asks for both themes to be readable; the API's own docs are not pages of ours.
THEMES = ("light", "dark")


@pytest.fixture
def furnished(tenant, member):
    """A tenant with something on every page; returns the addresses of all of them."""
    by = members.actor_of(membership=member.memberships.select_related("member").get())
    agent = sessions.agent(tenant, "research")
    sessions.provider(tenant, "demo", name="demo", model_list=[{"name": "demo", "context_window": 64000}])
    sessions.provider(tenant, "openai", name="broken", last_test={"ok": False, "code": "unauthenticated", "message": "The provider refused the key."})
    agent_factories.skill(tenant, "claims", resources=[{"name": "forms/claim.md", "text": "Who, when, what."}])
    agent_factories.mcp_server(tenant, tools=[agent_factories.mcp_tool("docs", "read")], resources=[{"uri": "docs://a", "name": "A"}])
    subject = governance.subject(tenant, "customer-7")
    session = sessions.session(agent, subject, key="case-4182")
    run = sessions.run(agent, session, subject=subject)
    sessions.turns(session, 3, run)
    seen_by_the_model(session, run)
    sessions.workspace_file(session, "notes/plan.md", "One\nTwo\n")
    waiting = sessions.run(agent, sessions.session(agent, subject), subject=subject, status="awaiting_approval")
    approval = sessions.approval(waiting)
    sessions.rule(agent)
    key, _secret = keys.create_key(tenant_id=tenant.pk, name="crm", scopes=["runs:write", "subjects:assert"], expires_at=timezone.now() + timedelta(days=30), by=by)
    colleague, _password = members.add_member(tenant=tenant, username="ben", roles=["operator"], by=by)
    quota = quotas.create_quota(tenant_id=tenant.pk, scope="tenant", measure="cost", period="day", limit=5, by=by)
    policy = retention.create_policy(tenant_id=tenant.pk, category="sessions", age_basis="last_activity", days=30, by=by)
    request, _token = previews.preview(subject=subject, by=by)
    export = Export.objects.get(request=exports.work(request_id=requests.export(subject=subject, by=by).id))
    named = {
        "member": shown("mem", colleague.pk),
        "quota-edit": shown("quo", quota.pk),
        "policy": shown("pol", policy.pk),
        "subject": subject.display_ref,
        "subject-split": subject.display_ref,
        "unattributed-rows": "agent_files",
        "request": request.ref,
        "archive-link": exports.make_links(export=export, by=by)[0],
        "provider": "demo",
        "provider-edit": "demo",
        "mcp-server": "docs",
        "mcp-server-edit": "docs",
        "skill": "claims",
        "skill-edit": "claims",
        "session": shown("ses", session.pk),
        "session-workspace": shown("ses", session.pk),
        "file": shown("fil", sessions.agent_file(session.agent, None).pk),
        "run": shown("run", run.pk),
        "approval": shown("apr", approval.pk),
        "agent": "research",
        "agent-edit": "research",
        "agent-versions": "research",
    }
    plain = [
        "overview", "playground", "sessions", "runs", "approvals", "approval-history", "approval-rules",
        "agents", "agent-new", "agent-import", "tools", "skills", "skill-new", "mcp-servers", "mcp-server-new", "providers", "provider-new",
        "subjects", "unattributed", "requests", "retention", "policy-new", "audit", "files",
        "members", "member-new", "keys", "key-new", "quotas", "quota-new", "tenant",
        "account", "change-password", "help", "help-definition", "help-permissions", "help-categories", "gallery",
    ]  # fmt: skip
    inside = {
        "session-item": (shown("ses", session.pk), 1),
        "session-workspace-file": (shown("ses", session.pk), "notes/plan.md"),
        "run-event": (shown("run", run.pk), 1),
        "run-behind": (shown("run", run.pk), 1, "history"),
        "skill-version": ("claims", 1),
        "agent-version": ("research", 1),
    }
    found = [reverse(name) for name in plain] + [reverse(name, args=[ref]) for name, ref in named.items()]
    return found + [reverse(name, args=given) for name, given in inside.items()]


def seen_by_the_model(session, run):
    """Give the run every part that a call can have, and the session a summary in every state."""
    for to_seq, state in ((2, {"text": "", "is_stale": True}), (4, {}), (6, {}), (6, {"text": "", "failure": "empty"})):
        sessions.summary(session, to_seq, **state)
    ranges = {"history": ["1-4"], "message": ["5"], "summary": ["1-6"], "summarised": ["1-4"], "written_down": ["1-6"]}
    layers = [{"layer": name, "tokens": 40, "sources": ranges.get(name, ["source"]), "left_out": []} for name in LAYERS]
    layers[-1]["left_out"] = [{"items": "1-2", "tokens": 90, "reason": "beyond the layer's limit of 10 tokens"}]
    sessions.model_call(run, 1, context=layers)
    sessions.model_call(run, 2, context=layers)
    told = [
        ("context.assembled", {"call": 1, "tokens": 640, "window": 64000, "layers": layers}),
        ("history.compacted", {"before": 900, "after": 90, "summarised": "1-6", "shortened": ["3"], "dropped": ["1-2"]}),
        ("alert", {"code": "loop_suspected", "message": "look was called 3 times with the same result."}),
        ("aggregation.completed", {"path": "/memory/working.md"}),
        ("aggregation.completed", {"path": "/memory/working.md", "failure": "error_text"}),
        ("run.completed", {"status": "completed"}),
    ]
    for seq, (kind, data) in enumerate(told, start=1):
        sessions.event(run, seq, kind, data)


def test_sign_in_and_out(new_page, member):
    page = new_page()
    page.goto("/members")

    page.get_by_label("Username").fill("ann")
    page.get_by_label("Password").fill("not it")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("The username or the password is not right.")
    page.get_by_label("Password").fill(governance.PASSWORD)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Members and roles")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.goto("/members")
    expect(page).to_have_url(re.compile("/sign-in"))


def test_one_time_password_becomes_an_own_one(new_page, member):
    Member.objects.filter(pk=member.pk).update(must_change_password=True)
    page = new_page()
    sign_in(page, "ann")

    expect(page.get_by_role("heading", level=1)).to_have_text("Choose your own password")
    page.get_by_label("One-time password").fill(governance.PASSWORD)
    page.get_by_label("New password", exact=True).fill("seven blue rivers")
    page.get_by_label("New password again").fill("seven blue rivers")
    page.get_by_role("button", name="Change password").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.get_by_role("status").first).to_contain_text("Your password was changed.")


def test_theme_is_kept(signed_in_page):
    page = signed_in_page
    page.emulate_media(color_scheme="light")
    page.goto("/account")
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")

    page.get_by_label("Dark").check()
    page.get_by_role("button", name="Save").click()

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.timeout(600)
def test_no_page_has_a_barrier(signed_in_page, furnished, check_accessibility, theme):
    page = signed_in_page
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")

    for address in furnished:
        answer = page.goto(address)
        assert answer.status == 200, address
        page.evaluate("for (const fold of document.querySelectorAll('main details')) fold.open = true")
        check_accessibility(page)


@pytest.mark.timeout(300)
def test_every_page_fits_into_360_pixels(new_page, member, furnished, enter):
    page = new_page(**NARROW)
    enter(page, member)

    wide = []
    for address in furnished:
        page.goto(address)
        if page.evaluate("document.documentElement.scrollWidth") > 360:
            wide.append(address)

    assert wide == []


def test_menu_opens_on_a_narrow_window_without_a_script(new_page, member, enter):
    page = new_page(**NARROW, java_script_enabled=False)
    enter(page, member)

    link = page.get_by_role("navigation", name="Main").get_by_role("link", name="Members and roles")
    expect(link).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    link.click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Members and roles")


def test_pages_work_without_a_script(new_page, member, tenant, enter):
    key = keys.create_key(tenant_id=tenant.pk, name="crm", scopes=["runs:write"], by=members.actor_of(membership=member.memberships.get()))[0]
    page = new_page(java_script_enabled=False)
    enter(page, member)

    page.goto("/keys")
    page.get_by_role("link", name="Revoke…").click()
    page.locator(f"#revoke-{key.pk.hex}").get_by_role("button", name="Revoke").click()

    expect(page.locator("#messages")).to_contain_text("The key crm no longer works.")


def packed(address):
    """Bytes of a static file as an installation serves it: compressed (WhiteNoise)."""
    return len(gzip.compress(Path(finders.find(urlsplit(address).path.removeprefix("/static/"))).read_bytes()))


@pytest.mark.timeout(300)
def test_first_load_of_every_page_is_small(new_page, member, furnished, enter):
    page = new_page()
    enter(page, member)
    heavy = {}
    for address in furnished:
        page.goto(address, wait_until="load")
        loaded = page.evaluate("[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].map((entry) => [entry.name, entry.encodedBodySize])")
        size = sum(packed(name) if "/static/" in name else weight for name, weight in dict(loaded).items())
        if size > 100_000:
            heavy[address] = size

    assert heavy == {}


def test_palette_goes_to_a_session_by_keyboard(signed_in_page, furnished, check_accessibility):
    page = signed_in_page
    page.goto("/members")

    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Find")
    expect(box).to_be_focused()
    page.keyboard.type("case-41")
    expect(page.get_by_role("option", name="case-4182")).to_be_visible()
    check_accessibility(page)
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile("/sessions/ses_"))


def test_palette_goes_to_a_page_and_closes_with_escape(signed_in_page):
    page = signed_in_page
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox", name="Find")).to_be_hidden()

    page.keyboard.press("Control+k")
    page.keyboard.type("api k")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("API keys")


def test_keys_focus_the_filter_and_list_themselves(signed_in_page, check_accessibility):
    page = signed_in_page
    page.goto("/members")

    page.keyboard.press("/")
    expect(page.get_by_label("Name contains")).to_be_focused()
    page.keyboard.type("zzz")
    expect(page.get_by_text("Nobody has that name here")).to_be_visible()
    page.get_by_role("link", name="Clear the filter").click()
    expect(page).to_have_url(re.compile("/members$"))
    expect(page.get_by_role("row")).to_have_count(2)
    page.keyboard.press("?")

    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    check_accessibility(page)


def test_skip_link_is_the_first_stop(signed_in_page):
    page = signed_in_page
    page.goto("/members")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")

    expect(page.get_by_role("link", name="Add a member")).to_be_focused()


def test_dialog_keeps_and_returns_the_focus(signed_in_page, furnished):
    page = signed_in_page
    page.goto("/keys")
    opener = page.get_by_role("button", name="Revoke…")
    opener.focus()

    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Revoke crm?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")

    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()


def test_secret_of_a_new_key_is_copied(signed_in_page):
    page = signed_in_page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/keys/new")
    page.get_by_label("Name").fill("crm")
    page.get_by_label(re.compile("^runs:write")).check()
    page.get_by_role("button", name="Create").click()

    page.locator(".secret").get_by_role("button", name="Copy").click()

    expect(page.locator(".secret").get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#secret").text_content()


def test_model_rows_are_added(signed_in_page):
    page = signed_in_page
    page.goto("/providers/~new")
    rows = page.locator("table[data-rows] tbody tr")
    expect(rows).to_have_count(2)

    page.get_by_role("button", name="One more model").click()

    expect(rows).to_have_count(3)
    expect(page.locator("#id_models-2-name")).to_be_focused()


def test_tenant_is_switched(signed_in_page, member):
    other = governance.tenant("fabrikam")
    member.memberships.create(tenant=other, roles=["tenant_admin"])
    page = signed_in_page
    page.goto("/members")

    page.locator("summary.tenant").click()
    page.get_by_role("button", name="Fabrikam").click()

    expect(page.locator("summary.tenant")).to_contain_text("Fabrikam")


def test_gallery_opens_and_closes_its_dialog(signed_in_page):
    page = signed_in_page
    page.goto("/help/components")

    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("dialog", name="Delete research?")).to_be_visible()
    page.get_by_role("button", name="Keep").click()

    expect(page.get_by_role("dialog", name="Delete research?")).to_be_hidden()
