"""Connections to MCP servers: one for each server and conversation in an event loop, opened by the first call.

A client of the protocol must be closed by the task that opened it, so each connection has a task of its own. People
never share one: a server may keep state for who speaks to it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT

from agents.mcp import reading
from agents.mcp.targets import Listing, McpFailed, Target, ToolError
from agents.mcp.transports import open_transport

logger = logging.getLogger("lethe.mcp")

T = TypeVar("T")

CONNECT_SECONDS = 15.0
IDLE_SECONDS = 60.0
MOST_CONNECTIONS = 200
_CLOSE_SECONDS = 8.0

_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], "Connection"]] = WeakKeyDictionary()


async def call_tool(target: Target, *, owner: str, tool: str, arguments: dict[str, Any], seconds: float) -> str:
    """What a tool answers, as text. `owner` names whose conversation it is. Raises ToolError and McpFailed."""
    result = await _use(target, owner, lambda client: client.call_tool(tool, arguments, read_timeout_seconds=seconds), seconds)
    text = reading.text_of(result)
    if result.is_error:
        raise ToolError(text or f"{tool} failed without saying why.")
    return text


async def read_resource(target: Target, *, owner: str, uri: str, seconds: float) -> str:
    """The text of a resource. Raises McpFailed, also when it is no text."""
    result = await _use(target, owner, lambda client: client.read_resource(uri), seconds)
    return reading.text_of_resource(result)


async def list_all(target: Target, *, seconds: float = 30.0) -> Listing:
    """What a server offers, over a connection that is closed afterwards. Raises McpFailed."""
    try:
        return await _use(target, "listing", lambda client: reading.listing_of(target.name, client), seconds)
    finally:
        await _drop(target, "listing")


async def close_all() -> None:
    """Close the connections of the running loop; called when its process or thread ends."""
    pool = _pools.pop(asyncio.get_running_loop(), {})
    await asyncio.gather(*(connection.close() for connection in pool.values()))


async def _use(target: Target, owner: str, ask: Callable[[Client], Awaitable[T]], seconds: float) -> T:
    """Ask over the owner's connection. One that fails is given up: the next call opens another."""
    connection = _connection(target, owner)
    try:
        async with asyncio.timeout(CONNECT_SECONDS + seconds):
            return await connection.ask(ask)
    except (ToolError, McpFailed):
        raise
    except TimeoutError:
        raise McpFailed("mcp_timeout", f"The MCP server {target.name} did not answer in {seconds:g} s.") from None
    except MCPError as error:
        if error.code == REQUEST_TIMEOUT:
            connection.retire()
            raise McpFailed("mcp_timeout", f"The MCP server {target.name} did not answer in {seconds:g} s.") from None
        if error.code == CONNECTION_CLOSED:
            connection.retire()
            raise McpFailed("mcp_lost", f"The MCP server {target.name} went away during the call.") from None
        if error.code == PARSE_ERROR:
            # The library's words, with the answer in them.
            connection.retire()
            raise McpFailed("mcp_bad_answer", f"The MCP server {target.name} gave an answer that cannot be used.") from None
        # The server's own words, about what it was asked.
        raise ToolError(reading.short(error.message) or "The server refused the call.") from None
    except Exception as error:
        connection.retire()
        # No more of it: what the library says of an answer quotes the answer.
        logger.warning("mcp call failed: server=%s error=%s", target.name, type(error).__name__)
        raise McpFailed("mcp_bad_answer", f"The MCP server {target.name} gave an answer that cannot be used.") from None


def _connection(target: Target, owner: str) -> "Connection":
    pool = _pools.setdefault(asyncio.get_running_loop(), {})
    found = pool.get((target.key, owner))
    if found is None or found.is_over:
        if len(pool) >= MOST_CONNECTIONS:
            _make_room(pool)
        found = pool[target.key, owner] = Connection(target, lambda: pool.pop((target.key, owner), None))
    return found


def _make_room(pool: dict[tuple[str, str], "Connection"]) -> None:
    """Give up the idle connection that was used longest ago; when all are busy, take none in."""
    idle = [connection for connection in pool.values() if not connection.busy]
    if not idle:
        raise McpFailed("mcp_busy", "Too many connections to MCP servers are open. Try again later.")
    min(idle, key=lambda connection: connection.used_at).retire()


async def _drop(target: Target, owner: str) -> None:
    if (connection := _pools.get(asyncio.get_running_loop(), {}).get((target.key, owner))) is not None:
        await connection.close()


class Connection:
    """One server, one conversation. `over` is called when it has ended."""

    def __init__(self, target: Target, over: Callable[[], Any]):
        loop = asyncio.get_running_loop()
        self.target, self._over = target, over
        self.busy, self.used_at = 0, loop.time()
        self.is_over = False
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client] = loop.create_future()
        self._task = loop.create_task(self._own())

    async def ask(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        self.busy += 1
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                client = await asyncio.shield(self._ready)
            # A server that dies takes the connection's task with it, and nobody would end the wait.
            asked = asyncio.ensure_future(ask(client))
            try:
                await asyncio.wait({asked, self._task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not asked.done():
                    asked.cancel()
                    await asyncio.gather(asked, return_exceptions=True)
            if asked.cancelled():
                raise McpFailed("mcp_lost", f"The MCP server {self.target.name} went away during the call.")
            return asked.result()
        finally:
            self.busy -= 1
            self.used_at = asyncio.get_running_loop().time()

    def retire(self) -> None:
        """No new call; it closes by itself."""
        if not self.is_over:
            self.is_over = True
            self._over()
        self._stop.set()

    async def close(self) -> None:
        self.retire()
        await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _own(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as opening:
                async with Client(open_transport(self.target), read_timeout_seconds=self.target.timeout, cache=None) as client:
                    opening.reschedule(None)
                    self._ready.set_result(client)
                    await self._linger()
        except Exception as error:
            if not self._ready.done():
                logger.warning("mcp connect failed: server=%s error=%s", self.target.name, _kinds(error))
                self._ready.set_exception(_unreachable(self.target, error))
                # Whoever asked may have gone: nobody else is to be told.
                self._ready.exception()
            else:
                logger.info("mcp connection ended: server=%s error=%s", self.target.name, type(error).__name__)
        finally:
            self.retire()
            if not self._ready.done():
                self._ready.cancel()

    async def _linger(self) -> None:
        """Until it is told to stop, or nobody has used it for a while."""
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            rest = IDLE_SECONDS if self.busy else self.used_at + IDLE_SECONDS - loop.time()
            if rest <= 0:
                self.retire()
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), rest)
        # What is still asked comes to its end: its deadline is its own.
        while self.busy:
            await asyncio.sleep(0.05)


def _kinds(error: BaseException) -> str:
    """The class of an error, and of those in a group."""
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return type(error).__name__ + (f"({', '.join(_kinds(part) for part in inner)})" if inner else "")


def _unreachable(target: Target, error: Exception) -> McpFailed:
    if isinstance(error, TimeoutError):
        return McpFailed("mcp_timeout", f"The MCP server {target.name} did not answer when it was greeted.")
    if isinstance(error, FileNotFoundError | PermissionError):
        return McpFailed("mcp_not_started", f"The program of the MCP server {target.name} cannot be started.")
    return McpFailed("mcp_unreachable", f"The MCP server {target.name} cannot be reached, or does not speak MCP.")
