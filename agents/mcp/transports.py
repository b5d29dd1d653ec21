"""The two ways to an MCP server, each with a bound on what it may send.

The library's own ways read whatever comes: an answer of any size over HTTP, a line of any length from a process.
"""

import asyncio
import contextlib
import os
import signal
import ssl
import tempfile
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import anyio
import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agents.mcp.targets import Target

# More than any tool should answer with; the model reads far less.
MOST_BYTES = 8 * 1024 * 1024
CONNECT_SECONDS = 5.0
_STOP_SECONDS = 2.0


@contextlib.asynccontextmanager
async def open_transport(target: Target) -> AsyncIterator[Any]:
    """The streams of the protocol's library for a server."""
    if target.transport == "stdio":
        async with _process(target) as streams:
            yield streams
        return
    async with _client(target) as client, streamable_http_client(
        target.url, http_client=client, max_sse_event_size=MOST_BYTES
    ) as streams:
        yield streams


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _client(target: Target) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=_Bounded(httpx2.AsyncHTTPTransport(verify=_tls())),
        headers={**target.secrets, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=max(60.0, target.timeout + 30)),
        # No proxy of the server's environment is told a tenant's headers; redirects stay within the address.
        trust_env=False,
        follow_redirects=False,
    )


class _Bounded(httpx2.AsyncBaseTransport):
    """Ends an answer that is larger than it may be, or packed so that nobody knows how large it is."""

    def __init__(self, inner: httpx2.AsyncBaseTransport):
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the answer is packed, which was not asked for", request=request)
        response.stream = _BoundedStream(response.stream, request)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, request: httpx2.Request):
        self._inner, self._request = inner, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for piece in self._inner:
            read += len(piece)
            if read > MOST_BYTES:
                raise httpx2.ReadError("the answer is too large", request=self._request)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


@contextlib.asynccontextmanager
async def _process(target: Target) -> AsyncIterator[Any]:
    """A server in a process of its own, in a group of its own, with an environment of next to nothing."""
    process = await asyncio.create_subprocess_exec(
        target.command, *target.args, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, env={**get_default_environment(), **target.secrets}, cwd=tempfile.gettempdir(),
        limit=MOST_BYTES, start_new_session=True,
    )  # fmt: skip
    incoming, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)[::-1]
    from_session, outgoing = anyio.create_memory_object_stream[SessionMessage](0)[::-1]
    tasks = [asyncio.create_task(_read(process, to_session)), asyncio.create_task(_write(process, from_session, to_session))]
    try:
        yield incoming, outgoing
    finally:
        for stream in (outgoing, incoming, to_session, from_session):
            stream.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.shield(_stopped(process))


async def _read(process: asyncio.subprocess.Process, to_session: Any) -> None:
    """One message a line. A line that is too long, or the end, closes the stream: the session sees the server go."""
    with to_session, contextlib.suppress(ValueError, ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while line := await process.stdout.readline():
            try:
                message: SessionMessage | Exception = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:
                message = error
            await to_session.send(message)


async def _write(process: asyncio.subprocess.Process, from_session: Any, to_session: Any) -> None:
    try:
        with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
    except (ConnectionError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        # Closed, so that nobody waits for an answer that cannot come.
        to_session.close()


async def _stopped(process: asyncio.subprocess.Process) -> None:
    """Let it end by itself, then ask it, then kill it and what it started."""
    process.stdin.close()
    for sent in (None, signal.SIGTERM, signal.SIGKILL):
        if sent is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sent)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            break
    # What it started may still be there, and holds the pipes open.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process._transport.close()  # noqa: SLF001 -- asyncio has no other way to let go of a pipe that a grandchild holds
