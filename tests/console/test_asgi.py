"""Django under ASGI: threads and bodies."""

import asyncio
import json
import threading
import time

import pytest
from django.http import HttpResponse

from console import asgi
from console.middleware import RequestIdMiddleware


def answer_to(*, path="/healthz", method="GET", headers=(), chunks=(b"",)):
    """(status, body) of one request to the application, its body sent in `chunks`."""
    sent, waiting = [], list(chunks)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "headers": [(b"host", b"localhost"), *headers],
    }  # fmt: skip

    async def receive():
        if not waiting:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message):
        sent.append(message)

    asyncio.run(asgi.django_application(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.fixture
def kept(monkeypatch):
    """The sizes of the bodies that were kept."""
    sizes, create = [], asgi.Handler.create_request

    def watched(self, scope, body_file):
        sizes.append(body_file.seek(0, 2))
        body_file.seek(0)
        return create(self, scope, body_file)

    monkeypatch.setattr(asgi.Handler, "create_request", watched)
    return sizes


def test_a_request_is_answered_in_one_thread(monkeypatch):
    threads = []

    def watched(view):
        def call(*args, **kwargs):
            threads.append(threading.current_thread())
            return view(*args, **kwargs)

        return call

    handler = asgi.Handler()
    monkeypatch.setattr(RequestIdMiddleware, "__call__", watched(RequestIdMiddleware.__call__))
    monkeypatch.setattr("console.api.views.system.HttpResponse", watched(HttpResponse))
    monkeypatch.setattr(asgi, "django_application", handler)

    assert answer_to()[0] == 200

    assert len(threads) == 2
    assert len(set(threads)) == 1
    assert threads[0] is not threading.main_thread()


def test_many_who_come_at_once_are_answered_a_few_at_a_time():
    handler, now, most = asgi.Handler(), [], []

    def answer():
        now.append(1)
        most.append(len(now))
        time.sleep(0.005)
        now.pop()

    async def come():
        await asyncio.gather(*(handler._in_thread(answer) for _ in range(30)))

    asyncio.run(come())

    assert len(most) == 30
    assert max(most) == asgi._AT_ONCE


def test_who_waits_for_something_else_keeps_nobody_from_being_answered():
    handler, gone = asgi.Handler(), threading.Event()

    async def come():
        slow = [asyncio.create_task(handler._in_thread(gone.wait, 60)) for _ in range(10)]
        await asyncio.sleep(0)
        assert await handler._in_thread(lambda: "answered") == "answered"
        assert not any(task.done() for task in slow)
        gone.set()
        assert all(await asyncio.gather(*slow))

    asyncio.run(come())

    # Whoever made room early does not make it a second time.
    assert handler._room._value == asgi._AT_ONCE


@pytest.mark.django_db
@pytest.mark.parametrize("headers", [[], [(b"transfer-encoding", b"chunked")]])
def test_of_a_huge_body_only_what_may_be_read_is_kept(settings, kept, headers):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    status, body = answer_to(
        path="/api/agents/validate", method="POST", chunks=[b"x" * 800] * 50, headers=[*headers, (b"content-type", b"application/json")]
    )

    assert kept == [1001]
    assert status == 401
    assert json.loads(body)["code"] == "unauthenticated"


def test_form_with_files_may_be_larger(settings, kept):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    settings.LETHE = {**settings.LETHE, "form_bytes": 5000}

    answer_to(path="/sign-in", method="POST", chunks=[b"x" * 800] * 50, headers=[(b"content-type", b"multipart/form-data; boundary=b")])

    assert kept == [5001]
