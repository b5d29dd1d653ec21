"""A provider on loopback, in the test's own event loop: it plays a script and checks the rules of its protocol."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from sessions.engine.models import Limits, ProviderConfig
from tests.wire.protocols import PROTOCOLS
from tests.wire.replies import Hang, Reply, Reset, Say, Status, said


class FakeProvider:
    """Serves one protocol. Requests take the replies of `script` in order; afterwards every answer is "Done."."""

    def __init__(self, protocol: str, *script: Reply):
        self.protocol = PROTOCOLS[protocol]
        self.name = protocol
        self.script: list[Reply] = list(script)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.problems: list[str] = []
        self.models = ["model-a", "model-b"]
        self.model_status = 200
        self.asked_at: list[float] = []
        # When the client closed a connection that was being answered.
        self.closed_at: list[float] = []
        self.open = 0
        self.most_open = 0
        self._connections: set[asyncio.Task] = set()

    async def __aenter__(self) -> "FakeProvider":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def base_url(self) -> str:
        # The path that people configure: OpenAI's ends in /v1.
        return f"http://127.0.0.1:{self.port}" + ("/v1" if self.protocol.kind == "openai" else "")

    def config(self, name: str = "main", **changes: Any) -> ProviderConfig:
        given = {
            "id": None,
            "name": name,
            "kind": self.protocol.kind,
            "base_url": self.base_url,
            "api": self.protocol.api or "responses",
            "key": "sk-very-secret",
            "limits": {self.protocol.model: Limits(100_000, 8_000)},
        }
        return ProviderConfig(**{**given, **changes})

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            with contextlib.suppress(Exception):
                writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.headers.append(headers)
        self.paths.append(path)
        if method == "GET":
            return await self._list(writer)
        self.asked_at.append(time.monotonic())
        parsed = json.loads(body)
        self.bodies.append(parsed)
        self.problems += self.protocol.problems(path, parsed)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self._reply(self.script.pop(0) if self.script else said("Done."), reader, writer)
        finally:
            self.open -= 1

    async def _list(self, writer: asyncio.StreamWriter) -> bool:
        entries = [{"id": name, "name": f"models/{name}"} for name in self.models]
        body = {"data": entries} if self.protocol.kind != "google" else {"models": entries}
        await self._plain(writer, Status(self.model_status, json.dumps(body)))
        return True

    async def _reply(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if isinstance(reply, Reset):
            writer.transport.abort()
            return False
        if isinstance(reply, Hang):
            await self._until_closed(reader)
            return False
        if isinstance(reply, Status):
            await self._plain(writer, reply)
            return True
        return await self._stream(reply, reader, writer)

    async def _plain(self, writer: asyncio.StreamWriter, reply: Status) -> None:
        body = reply.body.encode()
        headers = {"content-type": reply.content_type, "content-length": str(len(body)), **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode() + body)
        await writer.drain()

    async def _stream(self, say: Say, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        closed = asyncio.create_task(self._until_closed(reader)) if say.pause or say.end == "hang" else None
        try:
            for event in self.protocol.stream(say):
                data = event.encode()
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()
                if say.pause:
                    await asyncio.wait({closed}, timeout=say.pause)
                    if closed.done():
                        return False
            if say.end == "reset":
                writer.transport.abort()
                return False
            if say.end == "hang":
                await closed
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            # Whoever watched the connection may have taken bytes of the next request: start a new one.
            return closed is None
        except ConnectionError:
            # The writer may see it before the watcher does, who is then stopped before it can tell.
            if closed is None or not closed.done():
                self.closed_at.append(time.monotonic())
            raise
        finally:
            if closed is not None:
                closed.cancel()

    async def _until_closed(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.closed_at.append(time.monotonic())


@contextlib.asynccontextmanager
async def serving(*protocols_and_scripts: tuple[str, list[Reply]]) -> AsyncIterator[list[FakeProvider]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(FakeProvider(protocol, *script))
            for protocol, script in protocols_and_scripts
        ]
