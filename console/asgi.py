"""The ASGI application: Django, and a lifespan that drains running work before the process ends."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from importlib import import_module

import django
from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.urls import set_script_prefix

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

# Requests that compute at the same time; with more, threads of one interpreter mostly take it from each other.
_AT_ONCE = 2
# Whatever takes longer waits for something else than this process, and keeps nobody from being answered.
_COMPUTES_SECONDS = 0.1


class Handler(ASGIHandler):
    """Django under ASGI, with one change of threads a request.

    All our views are synchronous. Django would run each middleware that can be asynchronous on the event loop, start a
    thread for each request, and hop between the two several times: most of what a small request costs. Here a request
    is answered from its first signal to its last in one of `web_threads` threads; only streams come back to the loop.
    Of many who come at once, a few are answered at a time: the first is done soon, and the last no later.
    """

    def load_middleware(self, is_async=True):
        super().load_middleware(is_async=False)
        self._threads = ThreadPoolExecutor(settings.LETHE["web_threads"], thread_name_prefix="lethe-web")
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def handle(self, scope, receive, send):
        try:
            body = await self.read_body(_within(_most_bytes(scope), receive))
        except RequestAborted:
            return
        with body:
            request, response = self.create_request(scope, body)
            response = await self._in_thread(self._answer, scope, request, response)
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)

    async def _in_thread(self, function, *args):
        loop = asyncio.get_running_loop()
        await self._room.acquire()
        with ExitStack() as leaving:
            leaving.callback(self._room.release)
            early = loop.call_later(_COMPUTES_SECONDS, leaving.close)
            leaving.callback(early.cancel)
            # With a copy of the context, so that what a request sets is gone after it.
            return await loop.run_in_executor(self._threads, copy_context().run, function, *args)

    def _answer(self, scope, request, refusal):
        """The response; one that is whole is closed, and either way the thread's connection is given back."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        response = refusal if request is None else self.get_response(request)
        response._handler_class = self.__class__
        if response.streaming:
            close_old_connections()
        else:
            response.close()
        return response

    async def _stream(self, response, receive, send):
        """Send until the end, or until the client is gone."""
        sending = asyncio.create_task(self.send_response(response, send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            leaving.cancel()
            ended, _ = await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._in_thread(response.close)
        if isinstance(ended, Exception):
            raise ended


def _within(most: int, receive):
    """Keeps one byte more of a body than a view may read: a client cannot fill the disk with the rest."""
    room = most + 1

    async def limited():
        nonlocal room
        message = await receive()
        if message["type"] == "http.request":
            message = {**message, "body": message.get("body", b"")[: max(room, 0)]}
            room -= len(message["body"])
        return message

    return limited


def _most_bytes(scope) -> int:
    """The largest body of this request. Forms with files are told of too large ones by the fields themselves."""
    is_form = any(name == b"content-type" and value.startswith(b"multipart/form-data") for name, value in scope["headers"])
    return settings.LETHE["form_bytes"] if is_form else settings.DATA_UPLOAD_MAX_MEMORY_SIZE


django.setup(set_prefix=False)
django_application = Handler()


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "http":
        await django_application(scope, receive, send)
    else:
        raise ValueError(f"Lethe does not speak {scope['type']}.")


async def _lifespan(receive, send):
    from console import gate  # noqa: PLC0415 -- Django is set up by now
    from sessions import notify  # noqa: PLC0415
    from sessions.engine import runner  # noqa: PLC0415

    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            if (reason := await asyncio.to_thread(gate.reason_not_to_start)) is not None:
                await send({"type": "lifespan.startup.failed", "message": reason})
                return
            runner.warm_up()
            # Pages and API, which the first request would wait for.
            await asyncio.to_thread(import_module, settings.ROOT_URLCONF)
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await asyncio.to_thread(runner.drain, settings.LETHE["drain_seconds"])
            await notify.hub().close()
            await send({"type": "lifespan.shutdown.complete"})
            return
