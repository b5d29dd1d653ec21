"""Chromium against a real server: uvicorn on loopback, in this process, on the database of the test run.

Everything is committed, because the server and the engine have connections of their own; the tables are emptied after
each test.
"""

import os
import re
import threading
import time
from urllib.parse import urlsplit

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client
from playwright.sync_api import sync_playwright

from console import stepup
from console.asgi import django_application
from governance.permissions import ROLES
from sessions.domain import definitions as compiled
from sessions.engine import runner
from sessions.models import Run
from tests import chromium
from tests.factories import governance

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
# What the browser says when a page was answered with an error on purpose.
ANSWERED = re.compile(r"Failed to load resource: the server responded with a status of (4\d\d)|Response Status Error Code (4\d\d)")


def pytest_collection_modifyitems(items):
    here = os.path.dirname(__file__)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(autouse=True)
def fresh_definitions():
    """Compiled definitions are kept by the process, and the tables are emptied after each test."""
    compiled.forget()
    yield
    compiled.forget()


@pytest.fixture(scope="session")
def server_url(django_db_setup):
    """The address of a server that runs for all tests of this process."""
    # The lifespan drains the engine when the server ends; here the engine outlives it, and tests/conftest.py drains it.
    config = uvicorn.Config(django_application, host="127.0.0.1", port=0, lifespan="off", log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="browser-server", daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "The server did not start."
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="package")
def browser():
    """Chromium, for as long as the tests come from this folder.

    Playwright runs an event loop in this thread. Django takes that for asynchronous code, and no asynchronous test
    could run beside it, so it ends before a test of another folder begins.
    """
    path = chromium.PROGRAM.find()
    assert path, "Chromium is missing: python -m tests.chromium"
    with sync_playwright() as playwright:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        launched = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = ""


class Watched:
    """What a page did that it should not: errors in its console, requests to other hosts, answers that are our fault."""

    def __init__(self, page, url):
        self.host, self.problems, self.bytes = urlsplit(url).netloc, [], 0
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)
        page.on("response", self._response)

    def _console(self, message):
        if message.type in ("error", "warning") and not ANSWERED.search(message.text):
            self.problems.append(f"console: {message.text}")

    def _request(self, request):
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self.host:
            self.problems.append(f"foreign: {request.url}")

    def _response(self, response):
        if response.status >= 500:
            self.problems.append(f"{response.status}: {response.url}")


@pytest.fixture
def new_page(transactional_db, server_url, browser):
    """`new_page(**options)`: a page in a browser of its own, watched. At the end of the test it must have been quiet."""
    contexts, watches = [], []

    def make(**options):
        context = browser.new_context(base_url=server_url, **{"viewport": {"width": 1360, "height": 920}, **options})
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.watched = Watched(page, server_url)
        contexts.append(context)
        watches.append(page.watched)
        return page

    yield make
    for context in contexts:
        context.close()
    settle()
    assert [problem for watch in watches for problem in watch.problems] == []


def settle():
    """Wait until no run is under way in this process: the tables are about to be emptied."""
    for run_id in Run.objects.filter(status__in=(Run.Status.QUEUED, Run.Status.RUNNING)).values_list("pk", flat=True):
        runner.runner().wait(run_id)


@pytest.fixture
def tenant(transactional_db):
    return governance.tenant("northwind")


@pytest.fixture
def member(tenant):
    """Somebody who may do everything in the tenant, and see the gallery."""
    made = governance.member(tenant, tuple(ROLES), username="ann")
    made.is_staff = True
    made.save(update_fields=["is_staff"])
    return made


def sign_in(page, username, password=governance.PASSWORD):
    page.goto("/sign-in")
    page.get_by_label("Username").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)


@pytest.fixture
def enter(server_url):
    """`enter(page, member)`: sign in without the form, whose slow hash would cost each test half a second."""

    def go(page, member):
        client = Client()
        client.force_login(member)
        session = client.session
        session[stepup.KEY] = time.time()
        session.save()
        value = client.cookies[settings.SESSION_COOKIE_NAME].value
        page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": server_url}])
        page.goto("/")

    return go


@pytest.fixture
def signed_in_page(new_page, member, enter):
    """A page of a member who may do everything, on the overview."""
    page = new_page()
    enter(page, member)
    return page


@pytest.fixture
def check_accessibility():
    """`check_accessibility(page)`: axe finds no serious or critical violation of WCAG 2.2 AA."""
    axe = Axe()
    options = {"resultTypes": ["violations"], "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}}

    def check(page):
        found = axe.run(page, options=options).response["violations"]
        grave = [violation for violation in found if violation["impact"] in ("serious", "critical")]
        told = [f"{page.url}: {entry['id']}: {entry['help']}: " + "; ".join(node["html"][:160] for node in entry["nodes"][:3]) for entry in grave]
        assert told == []

    return check
