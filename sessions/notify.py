"""Wake-ups between processes, through PostgreSQL's LISTEN and NOTIFY.

A notification carries the id of a run or of a shelf of files and nothing else: whoever wakes reads the rows. Each event
loop has one listening connection; when it breaks, everybody is woken, looks for itself, and waits on the next connection.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from django.db import connection
from psycopg import sql

logger = logging.getLogger("lethe.notify")

EVENTS = "lethe_events"
# The run is over, or waits for a person: for those who wait for its end and need not wake for each word of an answer.
ENDED = "lethe_ended"
CANCEL = "lethe_cancel"
FILES = "lethe_files"

_hubs: WeakKeyDictionary = WeakKeyDictionary()


def send(channel: str, run_id: UUID) -> None:
    """Notify at commit of the current transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [channel, run_id.hex])


def hub() -> "Hub":
    """The hub of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]


class Hub:
    """Fans notifications out to the tasks of one event loop, which listens only to what somebody there waits for."""

    def __init__(self):
        self._bells: dict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task | None = None
        self._wanted: set[str] = set()
        self._heard: set[str] = set()
        # Set when there is more to listen to, or nothing any more.
        self._changed = asyncio.Event()
        self._listening = asyncio.Condition()
        self._broken: Exception | None = None

    @contextmanager
    def bell(self, channel: str, run_id: UUID) -> Iterator[asyncio.Event]:
        """An event that is set whenever `channel` names `run_id`. Subscribe, then read the rows, then wait."""
        key, bell = (channel, run_id.hex), asyncio.Event()
        self._bells[key].add(bell)
        self._ensure_listening(channel)
        try:
            yield bell
        finally:
            self._bells[key].discard(bell)
            if not self._bells[key]:
                del self._bells[key]

    async def ready(self, channel: str) -> None:
        """Wait until the connection listens to the channel: what is sent from now on is heard."""
        self._ensure_listening(channel)
        async with self._listening:
            await self._listening.wait_for(lambda: channel in self._heard)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _ensure_listening(self, channel: str) -> None:
        if channel not in self._wanted:
            self._wanted.add(channel)
            self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="lethe-listen")

    async def _listen(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(autocommit=True, **_parameters()) as listener:
                    listener.add_notify_handler(lambda told: self._ring((told.channel, told.payload)))
                    while True:
                        await self._listen_to_more(listener)
                        await self._hear(listener)
            except (psycopg.Error, OSError) as error:
                logger.warning("listening connection lost: %s", type(error).__name__)
            finally:
                self._heard.clear()
            self._ring_all()
            await asyncio.sleep(0.5)

    async def _listen_to_more(self, listener: psycopg.AsyncConnection) -> None:
        self._changed.clear()
        for channel in self._wanted - self._heard:
            await listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            async with self._listening:
                self._heard.add(channel)
                # What was told before anybody listened is found by looking.
                self._ring_all()
                self._listening.notify_all()

    async def _hear(self, listener: psycopg.AsyncConnection) -> None:
        """Ring for what is told, until there is more to listen to. Raises psycopg.Error when the connection is gone."""
        loop, place = asyncio.get_running_loop(), listener.fileno()
        # The driver's own way of waiting takes ten times as long for each notification, and every event of a run is one.
        loop.add_reader(place, self._read, listener.pgconn)
        try:
            await self._changed.wait()
        finally:
            loop.remove_reader(place)
        if self._broken is not None:
            error, self._broken = self._broken, None
            raise error

    def _read(self, driver: psycopg.pq.PGconn) -> None:
        try:
            driver.consume_input()
            while (told := driver.notifies()) is not None:
                self._ring((told.relname.decode(), told.extra.decode()))
        except psycopg.Error as error:
            self._broken = error
            self._changed.set()

    def _ring(self, key: tuple[str, str]) -> None:
        for bell in self._bells.get(key, ()):
            bell.set()

    def _ring_all(self) -> None:
        for bells in self._bells.values():
            for bell in bells:
                bell.set()


def _parameters() -> dict:
    """Where the database is, without Django's own additions to the connection."""
    known = ("dbname", "user", "password", "host", "port", "sslmode", "sslrootcert", "options")
    return {name: value for name, value in connection.get_connection_params().items() if name in known and value}
