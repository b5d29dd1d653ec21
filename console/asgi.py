"""The ASGI application: Django, and a lifespan that drains running work before the process ends."""

import asyncio
import os

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


class Handler(ASGIHandler):
    """Django under ASGI, with one change of threads a request.

    All our views are synchronous. Django would run each middleware that can be asynchronous on the event loop and hop
    to a thread and back for every one of them: half of what a small request costs.
    """

    def load_middleware(self, is_async=True):
        super().load_middleware(is_async=False)
        self._middleware_chain = sync_to_async(self._middleware_chain, thread_sensitive=True)

    async def handle(self, scope, receive, send):
        """Keep nothing of a body beyond what a view may read: a client cannot fill the disk with the rest."""
        room = _most_bytes(scope) + 1

        async def within():
            nonlocal room
            message = await receive()
            if message["type"] == "http.request":
                message = {**message, "body": message.get("body", b"")[: max(room, 0)]}
                room -= len(message["body"])
            return message

        await super().handle(scope, within, send)


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
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await asyncio.to_thread(runner.drain, settings.LETHE["drain_seconds"])
            await notify.hub().close()
            await send({"type": "lifespan.shutdown.complete"})
            return
