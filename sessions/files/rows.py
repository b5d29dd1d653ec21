"""Files in PostgreSQL: a row for each, which says whose it is, and by default holds the text.

Where the operator chose another place, the row stays and the bytes are there, under the row's id: so holds, fences,
retention and erasure see every file, wherever its bytes are. A file stays in the place where it was made.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID, uuid5

from django.contrib.postgres.search import SearchQuery, SearchRank
from django.db import OperationalError, connection, transaction
from django.db.models import F, Q, TextField, Value
from django.db.models.functions import Cast, Concat, Left, Now

from governance import sealing, sql, subject_keys
from governance.domain import expiry, fences, links
from governance.ids import uuid7
from governance.models import HeldCopy
from governance.text import clean
from sessions import notify
from sessions.errors import FileChanged, FileUnknown, StoreUnavailable
from sessions.files import paths, store
from sessions.models import AgentFile
from sessions.threads import in_thread

CATEGORY = "agent_files"
_PLACE = "in the database"
_CONTENT = AgentFile._meta.get_field("content")
_NAMESPACE = UUID("0b9f7a52-6f3f-4c0e-9d0e-0f5f3c1a7e11")


@dataclass(frozen=True)
class Shelf:
    """Whose files: of one subject with one agent, of an agent (no subject), or of the tenant (neither)."""

    tenant_id: UUID
    agent_id: UUID | None = None
    subject_id: UUID | None = None

    @property
    def lookup(self) -> dict[str, UUID | None]:
        return {"tenant_id": self.tenant_id, "agent_id": self.agent_id, "subject_id": self.subject_id}

    @cached_property
    def key(self) -> UUID:
        """Names the shelf in notifications."""
        return uuid5(_NAMESPACE, f"{self.tenant_id}/{self.agent_id}/{self.subject_id}")


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: a name to show, the run, and the person whose words may be in it.

    On a shelf that several people share, a file is linked to each of them: it goes with the first that is erased.
    """

    name: str
    run_id: UUID | None = None
    subject_id: UUID | None = None


class RowFiles:
    """Implements `store.Files` for one shelf. `outside` takes the bytes of new files; None keeps them in the row."""

    def __init__(self, shelf: Shelf, *, writer: Writer, limit: int, outside: store.Files | None = None):
        self.shelf, self._writer, self._limit, self._outside = shelf, writer, limit, outside

    def read(self, path: str) -> str | None:
        row = self._rows().filter(path=path).only("content", "is_outside", "tenant_id").first()
        return None if row is None else self.text_of(row)

    def read_version(self, path: str) -> tuple[str, str]:
        """The text and its version. Raises FileUnknown."""
        row = self._rows().filter(path=path).only("content", "sha256", "is_outside", "tenant_id").first()
        if row is None:
            raise FileUnknown
        return self.text_of(row), row.sha256

    def is_empty(self) -> bool:
        return not self._rows().exists()

    def write(self, path: str, text: str, expected: str | None = None) -> str:
        text = clean(text)
        store.check_size(len(text.encode()), self._limit)
        with self._writing():
            row = self._locked(path) or self._made(path, text)
            if row._state.adding:
                store.check_version(None, expected)
            else:
                self._check(row, expected)
                self._put(row, text)
            self._told_whose(row)
        return store.version_of(text)

    def append(self, path: str, text: str) -> int:
        added = len(text.encode())
        store.check_size(added, self._limit)
        with self._writing():
            row = self._locked(path) or self._made(path, text)
            offset = 0
            if not row._state.adding:
                offset = row.size
                store.check_size(offset + added, self._limit)
                if row.is_outside or self._is_sealed(row):
                    self._put(row, self.text_of(row) + text)
                else:
                    self._extend(row, text, added)
            self._told_whose(row)
        return offset

    def read_range(self, path: str, start: int, end: int | None = None) -> str:
        row = self._rows().filter(path=path).only("is_outside", "tenant_id").first()
        if row is None:
            return ""
        if row.is_outside:
            return self._place().read_range(place_of(row), start, end)
        if self._is_sealed(row):
            return store.whole(self.text_of(row).encode()[start:end])
        length = "" if end is None else ", %s"
        found = sql.row(
            f"SELECT substr(convert_to(content, 'UTF8'), %s{length}) FROM agent_sessions_agentfile WHERE id = %s",
            [start + 1, *([] if end is None else [end - start]), row.id],
        )
        return store.whole(bytes(found[0])) if found else ""

    def list(self, folder: str) -> list[str]:
        rows, values = self._rows().filter(path__startswith=folder).values("path").query.sql_with_params()
        with connection.cursor() as cursor:
            cursor.execute(
                f"""
                SELECT DISTINCT split_part(rest, '/', 1) || CASE WHEN position('/' IN rest) > 0 THEN '/' ELSE '' END
                FROM (SELECT substr(path, %s) AS rest FROM ({rows}) AS file) AS below
                """,
                [len(folder) + 1, *values],
            )
            return sorted(name for (name,) in cursor.fetchall())

    def exists(self, path: str) -> bool:
        return self._rows().filter(path=path).exists()

    def delete(self, path: str, expected: str | None = None) -> bool:
        with self._writing():
            row = self._locked(path)
            if row is None:
                store.check_version(None, expected)
                return False
            self._check(row, expected)
            # The row first: a hold refuses it, and then the bytes stay as well.
            AgentFile.objects.filter(id=row.id).delete()
            if row.is_outside:
                self._place().delete(place_of(row))
        return True

    def revisions(self, folder: str) -> dict[str, str]:
        rows = self._rows().filter(path__startswith=folder) | self._rows().filter(path=folder.rstrip("/"))
        return {path: f"{sha256} {at}" for path, sha256, at in rows.values_list("path", "sha256", "updated_at")}

    def sizes(self, folder: str, limit: int) -> Sequence[tuple[str, int]]:
        """Path and bytes of every file below the folder, by path."""
        return [*self._rows().filter(path__startswith=folder).order_by("path").values_list("path", "size")[:limit]]

    def texts(self, folder: str, most: int) -> Sequence[tuple[str, str]]:
        """Path and text of the files below the folder, by path, until they are `most` bytes together."""
        found, total = [], 0
        rows = self._rows().filter(path__startswith=folder).order_by("path")
        for row in rows.only("path", "size", "content", "is_outside", "tenant_id").iterator(chunk_size=50):
            total += row.size
            if total > most:
                break
            found.append((row.path, self.text_of(row)))
        return found

    def matching(self, wanted: str, *, folder: str, limit: int, most: int) -> Sequence[tuple[str, str]]:
        """Path and text of the files that fit a query (PostgreSQL's to_tsquery) best. Of those whose text is not in the
        database there is no index: they are read, as far as `most` bytes go."""
        query = SearchQuery(wanted, search_type="raw", config="simple")
        rows = self._rows().filter(path__startswith=folder)
        unseen = Q(is_outside=True)
        if subject_keys.is_configured():
            unseen |= _CONTENT.is_sealed_in_database()
        inside = rows.filter(~unseen, search=query).annotate(rank=SearchRank(F("search"), query)).order_by("-rank", "path")
        found = [*inside.values_list("path", "content")[:limit]]
        for row in rows.filter(unseen).order_by("-updated_at").only("path", "size", "is_outside", "tenant_id"):
            most -= row.size
            if most < 0:
                break
            found.append((row.path, self.text_of(row)))
        return found

    def text_of(self, row: AgentFile) -> str:
        """The text of a row, wherever it is. Raises StoreUnavailable when its place has lost it."""
        if not row.is_outside:
            return row.content
        text = self._place().read(place_of(row))
        if text is None:
            raise StoreUnavailable("in the store that was chosen for files")
        return _CONTENT.opened(text)

    def _is_sealed(self, row: AgentFile) -> bool:
        """Whether the text is, or would be if it were written now: SQL can neither cut nor extend it."""
        if self.shelf.subject_id is None or not subject_keys.is_configured():
            return False
        return sealing.protects(row.tenant_id) or self._rows().filter(_CONTENT.is_sealed_in_database(), id=row.id).exists()

    def _rows(self):
        return expiry.left(AgentFile.objects.filter(**self.shelf.lookup), tenant_id=self.shelf.tenant_id)

    def _place(self) -> store.Files:
        if self._outside is None:
            raise StoreUnavailable("in a store that is not configured any more")
        return self._outside

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with store.told(_PLACE, OperationalError), fences.told(), transaction.atomic():
            if self.shelf.subject_id is None and self._writer.subject_id is not None:
                fences.enter(subject_ids=[self._writer.subject_id])
            yield
            notify.send(notify.FILES, self.shelf.key)

    def _locked(self, path: str) -> AgentFile | None:
        rows = self._rows().filter(path=path).select_for_update()
        return rows.only("size", "sha256", "is_outside", "tenant_id").first()

    def _made(self, path: str, text: str) -> AgentFile:
        """A new row with the text, `_state.adding` as long as it is ours; the other one when somebody was faster."""
        self._make_room(path)
        fresh = AgentFile(
            **self.shelf.lookup, path=path, content="" if self._outside else text, is_outside=self._outside is not None,
            **self._facts(text),
        )  # fmt: skip
        made = AgentFile.objects.bulk_create([fresh], ignore_conflicts=True)[0]
        row = self._locked(path)
        if row is None:
            raise FileChanged(version=None)
        if row.id != made.id:
            return row
        row._state.adding = True
        if row.is_outside:
            self._place().write(place_of(row), _CONTENT.sealed(text, self.shelf))
        return row

    def _make_room(self, path: str) -> None:
        """A file that a retention policy has ended is gone for whoever writes; until it is deleted it gives up its path."""
        there = AgentFile.objects.filter(**self.shelf.lookup, path=path)
        aside = Concat(Left("path", paths.LONGEST - 37), Value("~"), Cast("id", TextField()), output_field=TextField())
        expiry.over(there, tenant_id=self.shelf.tenant_id).update(path=aside)

    def _put(self, row: AgentFile, text: str) -> None:
        changes = {"updated_at": Now(), **self._facts(text)}
        if not row.is_outside:
            AgentFile.objects.filter(id=row.id).update(content=_CONTENT.sealed(text, self.shelf), **changes)
            return
        with self._kept_under_hold(row):
            AgentFile.objects.filter(id=row.id).update(**changes)
        self._place().write(place_of(row), _CONTENT.sealed(text, self.shelf))

    @contextmanager
    def _kept_under_hold(self, row: AgentFile) -> Iterator[None]:
        """The database copies a row that a hold covers before it changes; where the bytes are elsewhere, a second copy has them."""
        copies = HeldCopy.objects.filter(tenant_id=row.tenant_id, category=CATEGORY, row_id=str(row.id))
        known = set(copies.values_list("id", flat=True))
        yield
        for copy in copies.exclude(id__in=known):
            copy.pk, copy._state.adding = uuid7(), True
            copy.content = {**copy.content, "content": self.text_of(row)}
            copy.save()

    def _extend(self, row: AgentFile, text: str, added: int) -> None:
        sql.execute(
            """
            UPDATE agent_sessions_agentfile SET content = content || %s, size = size + %s, updated_at = statement_timestamp(),
                sha256 = encode(sha256(convert_to(content || %s, 'UTF8')), 'hex'), run_id = %s, written_by = %s
            WHERE id = %s
            """,
            [text, added, text, self._writer.run_id, self._writer.name[:200], row.id],
        )

    def _facts(self, text: str) -> dict:
        data = text.encode()
        return {
            "size": len(data), "sha256": store.version_of(data), "run_id": self._writer.run_id,
            "written_by": self._writer.name[:200],
        }  # fmt: skip

    def _check(self, row: AgentFile, expected: str | None) -> None:
        if expected is not None and expected != row.sha256:
            raise FileChanged(version=row.sha256)

    def _told_whose(self, row: AgentFile) -> None:
        subject_id = self._writer.subject_id
        if self.shelf.subject_id is None and subject_id is not None:
            links.link(
                tenant_id=self.shelf.tenant_id, subject_id=subject_id, category=CATEGORY, row_id=str(row.id), role=links.Role.AUTHOR
            )


def place_of(row: AgentFile) -> str:
    """Where the bytes of a row are in a store outside. Whose they are is in the row only."""
    return f"/{row.tenant_id.hex}/{row.id.hex}"


class RowStore(store.Threaded):
    """The rows of a shelf as a KnowledgeStore. A change is heard at once, from every process."""

    files: RowFiles
    poll_seconds = 30.0

    def __init__(self, files: RowFiles):
        super().__init__(files, in_thread)

    async def on_change(self, path: str, callback: store.OnChange) -> store.Subscription:
        folder, hub = paths.folder(path), notify.hub()

        async def look() -> dict[str, str]:
            return await in_thread(self.files.revisions, folder)

        with ExitStack() as held:
            bell: asyncio.Event = held.enter_context(hub.bell(notify.FILES, self.files.shelf.key))
            await hub.ready(notify.FILES)
            polling = store.Polling(look, callback, seconds=self.poll_seconds, bell=bell, held=held.pop_all())
        return await polling.start()
