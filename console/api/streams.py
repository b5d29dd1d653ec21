"""Server-sent events (WHATWG HTML, section 9.2) and answers that wait, without holding a thread.

The generators only read what a run leaves behind: closing a connection ends the reading, never the run.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection
from django.http import StreamingHttpResponse

from governance.errors import NotFound
from governance.ids import shown
from sessions.domain import events

EVENT_STREAM = "text/event-stream"
# Three seconds before a browser's EventSource comes back, in milliseconds, and the first bytes of every stream: they
# go out at once, so that proxies and clients see an answer before the model has said anything.
_OPENING = b": lethe\nretry: 3000\n\n"
_KEEP_ALIVE = b": keep-alive\n\n"


def stream(*, run_id: UUID, tenant_id: UUID, after: int = 0, status: int = 200) -> StreamingHttpResponse:
    """The events of a run after the seq `after`, live until its last one."""
    response = StreamingHttpResponse(
        _frames(run_id=run_id, tenant_id=tenant_id, after=after), status=status, content_type=f"{EVENT_STREAM}; charset=utf-8"
    )
    return _unbuffered(response)


def answer_when_done(*, run_id: UUID, tenant_id: UUID, render: Callable[[object], dict]) -> StreamingHttpResponse:
    """The run as JSON once it is over or waits for an approval. `render` makes the document; it may read the database."""
    response = StreamingHttpResponse(
        _document(run_id=run_id, tenant_id=tenant_id, render=render), content_type="application/json"
    )
    return _unbuffered(response)


def frame(event) -> bytes:
    """One event on the wire. JSON keeps a line: no newline of a text can end the field."""
    data = json.dumps(event.data, ensure_ascii=False, separators=(",", ":"), default=str)
    return f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n".encode()


def _unbuffered(response: StreamingHttpResponse) -> StreamingHttpResponse:
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def _frames(*, run_id: UUID, tenant_id: UUID, after: int) -> AsyncIterator[bytes]:
    yield _OPENING
    try:
        async for event in events.tail(run_id=run_id, tenant_id=tenant_id, after=after):
            yield _KEEP_ALIVE if event is None else frame(event)
    except NotFound:
        # Erased while it was read.
        return


async def _document(*, run_id: UUID, tenant_id: UUID, render: Callable[[object], dict]) -> AsyncIterator[bytes]:
    waiting = asyncio.ensure_future(events.wait(run_id=run_id, tenant_id=tenant_id))
    try:
        while not (await asyncio.wait({waiting}, timeout=settings.LETHE["keepalive_seconds"]))[0]:
            # White space before a JSON value means nothing to its reader and keeps the connection alive.
            yield b" "
        document = await sync_to_async(_rendered, thread_sensitive=False)(render, waiting.result())
        yield json.dumps(document, ensure_ascii=False, default=str).encode()
    finally:
        waiting.cancel()


def _rendered(render, run) -> dict:
    try:
        return render(run)
    finally:
        connection.close()


def names(run) -> dict[str, str]:
    """Headers that name a run and where its events are, before the first event is there."""
    run_id = shown("run", run.id)
    headers = {"X-Lethe-Run": run_id, "Location": f"/api/runs/{run_id}", "Link": f'</api/runs/{run_id}/events>; rel="monitor"'}
    if run.session_id:
        headers["X-Lethe-Session"] = shown("ses", run.session_id)
    return headers
