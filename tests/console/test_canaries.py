"""What somebody types is in no audit event and in no line of the log: a canary in every field of every call and form.

Where a thing gets its name the trail says that name, and these places are listed. They are names that a team gives to its own
things; every other field may carry what a person said.
"""

import logging
import re
import secrets
import time
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from urllib.parse import urlsplit

import pytest
from django.core import serializers
from django.test import Client
from django.urls import Resolver404, resolve, reverse

from console import stepup
from governance.models import AuditEvent
from governance.permissions import ROLES, SCOPES
from tests.console.api.conftest import make_world, undone
from tests.console.api.routes import CALLS, ids
from tests.factories import governance

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]
_CANARY = re.compile(r"canary[0-9a-f]{12}")
# Where things are named, and where a notice is on file.
NAMES_OF_CALLS = {
    "PATCH /tenant: name", "POST /agents: name", "POST /api-keys: name", "POST /approval-rules: tool", "POST /holds: matter",
    "POST /mcp-servers: name", "POST /members: username", "POST /providers: name", "POST /skills: name",
    "POST /subject-requests/{request}/extend: notice_ref",
}  # fmt: skip
NAMES_OF_FORMS = {
    "agent-new: name", "key-new: name", "member-new: username", "request-extend: notice_ref", "skill-new: name", "tenant: name",
}  # fmt: skip
# Beside their bodies, calls of the API take these; a form of a page sends them never.
HEADERS = ("X-Lethe-Subject", "Idempotency-Key", "User-Agent", "Referer", "X-Request-ID")


@pytest.fixture
def world(db):
    return make_world("acme", "blue")


class Trap:
    """Gives out canaries and says which of them were told, by where they went in."""

    def __init__(self, caplog):
        self._places, self._caplog, self.told = {}, caplog, {"audit": set(), "log": set()}

    def canary(self, place) -> str:
        made = f"canary{secrets.token_hex(6)}"
        self._places[made] = place
        return made

    def look(self):
        """Inside the transaction of what was sent, before it is undone."""
        texts = {"audit": serializers.serialize("json", AuditEvent.objects.all()), "log": self._caplog.text}
        for name, text in texts.items():
            self.told[name] |= {self._places[found] for found in _CANARY.findall(text)}
        self._caplog.clear()


@pytest.fixture
def trap(caplog):
    return Trap(caplog)


# -- calls


def leaves(body, path=()):
    """Where a document has texts, as paths of keys."""
    if isinstance(body, str):
        yield path
    elif isinstance(body, dict | list):
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            yield from leaves(value, (*path, key))


def planted(body, path, text):
    if not path:
        return text
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = planted(body[path[0]], path[1:], text)
    return copy


def sent(call, world, trap):
    """(method, path, body, headers) of a call, once for each place of it with a canary there."""
    variables = ids(world)
    path, headers = call.path.format(**variables) + call.query, dict(call.headers)
    for leaf in leaves(call.body):
        yield call.method, path, planted(call.body, leaf, trap.canary(f"{call}: {'.'.join(map(str, leaf))}")), headers
    # A field and a filter that nobody knows, by their names and by what is in them.
    unknown = {trap.canary(f"{call}: name of a field"): trap.canary(f"{call}: unknown field")}
    query = f"{'&' if '?' in path else '?'}q={trap.canary(f'{call}: ?q')}&cursor={trap.canary(f'{call}: ?cursor')}"
    yield call.method, path + query, {**call.body, **unknown} if isinstance(call.body, dict) else call.body, headers
    for name in re.findall(r"{(\w+)}", call.path):
        yield call.method, call.path.format(**{**variables, name: trap.canary(f"{call}: {{{name}}}")}) + call.query, call.body, headers
    more = {name.lower().replace("-", "_"): trap.canary(f"{call}: {name}") for name in HEADERS}
    yield call.method, path, call.body, {**headers, **more}


def test_no_call_of_the_api_tells_the_trail_or_the_log_what_was_sent(world, trap):
    api = world.key(*SCOPES, name="canaries")
    tried = 0

    for call in CALLS:
        for method, path, body, headers in sent(call, world, trap):
            with undone():
                answer = api.ask(method, path, body, **headers)
                getattr(answer, "streaming", False) or answer.content  # noqa: B018 -- reads it
                trap.look()
            tried += 1

    assert tried > 3 * len(CALLS)
    assert trap.told["log"] == set()
    assert trap.told["audit"] == NAMES_OF_CALLS


# -- pages


class Forms(HTMLParser):
    """The links and forms of a page: [(method, action, {name: (kind, value)})]."""

    def __init__(self, page):
        super().__init__()
        self.links, self.forms, self._select = [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        if tag == "a" and has.get("href"):
            self.links.append(has["href"])
        elif tag == "form":
            self.forms.append((has.get("method", "get").lower(), has.get("action", ""), {}))
        elif self.forms and tag in ("input", "textarea", "button") and has.get("name"):
            kind = tag if tag != "input" else has.get("type", "text")
            if kind not in ("checkbox", "radio") or "checked" in has or has["name"] not in self._fields:
                self._fields[has["name"]] = (kind, has.get("value") or "")
        elif self.forms and tag == "select" and has.get("name"):
            self._select, self._fields[has["name"]] = has["name"], ("select", "")
        elif tag == "option" and self._select and (has.get("value") and not self._fields[self._select][1] or "selected" in has):
            self._fields[self._select] = ("select", has.get("value") or "")

    def handle_endtag(self, tag):
        if tag == "select":
            self._select = None

    @property
    def _fields(self):
        return self.forms[-1][2]


# The editor has hundreds of fields; they are tried together.
MANY = 20
TYPED = ("text", "textarea", "search", "email", "password", "url")


def crawl(client, cookies, start):
    """One page of each kind that links lead to: (view's name, address, its forms)."""
    waiting, seen = list(start), set()
    while waiting:
        address = waiting.pop(0)
        try:
            view = resolve(urlsplit(address).path).view_name
        except Resolver404:
            continue
        if view in seen:
            continue
        seen.add(view)
        client.cookies = SimpleCookie(cookies)
        with undone():
            response = client.get(address)
        if response.streaming or "text/html" not in response.get("Content-Type", ""):
            continue
        page = Forms(response.content.decode())
        yield view, address, page.forms
        waiting += [link for link in [*page.links, response.get("Location", "")] if link.startswith("/")]


def filled(name, fields, trap, one_by_one):
    """The form with canaries in all its texts, and, where asked, once for each text with a canary in that one only."""
    typed = [field for field, (kind, _value) in fields.items() if kind in TYPED]
    plain = {field: value or ("x" if kind in TYPED else "") for field, (kind, value) in fields.items()}
    for some in [typed, *([field] for field in typed if one_by_one and len(typed) < MANY)]:
        yield {**plain, **{field: trap.canary(f"{name}: {field}") for field in some}}


@pytest.mark.parametrize("one_by_one", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_no_page_tells_the_trail_or_the_log_what_was_typed(world, trap, one_by_one):
    member = governance.member(world.tenant, ROLES)
    client = Client()
    client.force_login(member)
    session = client.session
    session[stepup.KEY] = time.time()
    session.save()
    cookies = client.cookies.output(header="", sep=";")
    found, tried, refs = {}, set(), ids(world)
    start = [
        "/", reverse("subject", args=[world.person.display_ref]), reverse("session", args=[refs["session"]]), reverse("run", args=[refs["run"]]),
        reverse("request", args=[world.request.ref]), reverse("hold", args=[refs["hold"]]), reverse("file", args=[refs["agent_file"]]),
    ]  # fmt: skip

    for name, address, forms in crawl(client, cookies, start):
        found[name] = len(forms)
        for method, action, fields in forms:
            target = urlsplit(action or address).path
            view = resolve(target).view_name
            if (view, *fields) in tried:
                continue
            tried.add((view, *fields))
            for data in filled(view, fields, trap, one_by_one):
                client.cookies = SimpleCookie(cookies)
                with undone():
                    (client.post if method == "post" else client.get)(target, data)
                    trap.look()

    assert (len(found) > 30, len(tried) > 60) == (True, True), (found, tried)
    assert trap.told["log"] == set()
    assert trap.told["audit"] <= NAMES_OF_FORMS


def test_canary_in_the_trail_or_in_the_log_is_seen(world, trap):
    """The trap itself."""
    document = {"name": trap.canary("name of an agent"), "model": {"provider": "demo", "model": "demo"}}

    with undone():
        assert world.api.post("/agents", document).status_code == 201
        logging.getLogger("lethe.test").info("said %s", trap.canary("a line"))
        trap.look()

    assert trap.told == {"audit": {"name of an agent"}, "log": {"a line"}}
