"""A category that is one table: everything set-based, in SQL, from one declaration."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import connection, models
from django.db.models import Q

from governance.domain import portable
from governance.domain.category import (
    CHUNK_ROWS,
    Category,
    Chunk,
    Drift,
    EndsAfter,
    Erased,
    File,
    Held,
    NoLimit,
    Processing,
    Sample,
    Scope,
    Spare,
    Store,
    Table,
)
from governance.domain.derived_rows import DerivedRows
from governance.sealing import Sealed, opened_row
from governance.sql import texts_in_json

_PRINT = 16


class TableCategory(DerivedRows, Category):
    """The rows of one model that belong to a subject.

    - `order`: the columns that number the rows, unique together and never null, e.g. `("session_id", "seq")`.
    - `row_version`: SQL over the row (alias `t`) that changes when its content does; "0" for append-only rows.
    - `size_expression`: SQL for the bytes of a row; by default what PostgreSQL stores for it.
    - `ages`: retention's clocks, {"created": "created_at", "ended": "ended_at", "last_activity": ...}.
    - `group_of`: ("sessions", "session_id") says that a session takes these rows along; chains are followed
      (events of runs of sessions). The parent's model has a primary key of one column.
    - `eligible`: what must hold before retention takes a row, by the reason that is reported when it does not:
      {"active_run": Q(lease_run_id=None), "referenced": ~Exists(...)}.
    - `agent_field`: lookup of the agent's name ("agent__name"), where policies may be narrowed to one agent.
    - `ownerless`: rows without a subject are about nobody by their nature, as a limit for all is, or follow another row.
    - `named_in`: columns whose text may be what names a person, where a row has no subject: to suggest whose it is.
    - `method`: what erasure does. For "anonymise", `anonymise` gives the new values by column; the subject is
      always cleared. Retention may anonymise whatever has such values.
    - `sample_title`: a row's title in previews. Kept encrypted, shown to those who may read content.
    - `export_fields`: columns of the export, by default all but tenant and subject; (name, SQL over alias `t`) adds what
      another table knows. `file` names the columns (sha256, name, bytes) of bytes that the export carries as files.
    - `provided`: SQL condition over alias `t`: the person supplied this row. `redact`: columns that an export blanks in
      rows which are linked to other subjects, where the category's rule for third parties is "redact".
    - `restore`: called with an exported row, `scope=` and `files=`; returns the columns that the export does not have,
      so that an import can store the row again. Without it rows are not imported.
    - `effects`: called with `scope=`; returns what the rows caused outside, times by tool.
    - `quiesce`: called with `scope=` and `deadline=` before an erasure; stops running work, returns what still runs.
    - `rehome`: called with `tenant_id=` and `ids=` before retention deletes rows with their group; moves what rows
      that stay share with them. An erasure takes both, so it has nothing to move.
    - `companions`: called with `tenant_id=` and `ids=` when a hold names rows; returns the ids of those that keep part
      of their content, to be held as well.
    - `limit`: NoLimit or EndsAfter, where the rows follow no parent.
    - `on_hold`: "refuse", "copy" or "exempt", as the trigger of the table says (governance/triggers.py).
    - `merge`: called with `source=` and `target=` (scopes) before one subject's rows are given to another; settles what
      both have and only one may. `family`: called with `tenant_id=` and `ids=`; returns the ids of all rows that cannot
      belong to different people, these included.
    - `hidden`: the column of times that takes a derived row out of every read path. `regenerate`: called with `tenant_id=`,
      `row_id=` and `sources=` to rebuild such a row from these sources alone, note its lineage and show it again.
    - `also`: stores beside the table that the category answers for, e.g. BlobPrefix("exports"). `writers`: dotted names of
      what inserts rows here.
    """

    # How a hold finds rows that know their group by themselves: (hold, alias) -> (condition, values) or None.
    covered_by: Callable[..., tuple[str, list[Any]] | None] | None = None

    def __init__(
        self,
        *,
        key: str,
        title: str,
        model: type[models.Model],
        order: tuple[str, ...],
        about: Processing,
        subject_field: str = "subject_id",
        tenant_field: str = "tenant_id",
        row_version: str = "0",
        size_expression: str | None = None,
        ages: dict[str, str] | None = None,
        erase_after: tuple[str, ...] = (),
        group_of: tuple[str, str] | None = None,
        sample_title: Callable[[Any], str] | None = None,
        export_fields: tuple[str | tuple[str, str], ...] | None = None,
        provided: str = "",
        redact: tuple[str, ...] = (),
        restore: Callable[..., dict[str, Any]] | None = None,
        file: tuple[str, str, str] | None = None,
        named_in: tuple[str, ...] = (),
        ownerless: bool = False,
        eligible: Mapping[str, Q] | Q | None = None,
        agent_field: str = "",
        method: Literal["delete", "anonymise"] = "delete",
        anonymise: dict[str, Any] | None = None,
        quiesce: Callable[..., int] | None = None,
        rehome: Callable[..., Any] | None = None,
        companions: Callable[..., list[UUID]] | None = None,
        limit: NoLimit | EndsAfter | None = None,
        on_hold: Literal["refuse", "copy", "exempt"] = "refuse",
        also: tuple[Store, ...] = (),
        merge: Callable[..., None] | None = None,
        effects: Callable[..., dict[str, int]] | None = None,
        family: Callable[..., list[UUID]] | None = None,
        hidden: str = "",
        regenerate: Callable[..., None] | None = None,
        writers: tuple[str, ...] = (),
    ):
        if method == "anonymise" and anonymise is None:
            raise ValueError(f"{key}: say which columns `anonymise` sets.")
        self.key, self.title, self.model, self.about = key, title, model, about
        self.order, self.subject_field, self.tenant_field = tuple(order), subject_field, tenant_field
        self.row_version, self.size_expression = row_version, size_expression or "pg_column_size(t.*)"
        self.ages = dict(ages or {})
        self.erase_after, self.group_of = tuple(erase_after), group_of
        self.export_fields, self.file_fields = export_fields, file
        self.provided, self.redact, self.restore = provided, tuple(redact), restore
        self.eligible = dict(eligible) if isinstance(eligible, Mapping) else {"not_eligible": eligible} if eligible else {}
        self.named_in, self.ownerless = tuple(named_in), ownerless
        self.agent_field, self.method, self.anonymise, self.limit = agent_field, method, anonymise, limit
        self._title, self._quiesce, self._rehome = sample_title, quiesce, rehome
        self._companions, self.on_hold = companions, on_hold
        self.hidden, self._regenerate, self._merge = hidden, regenerate, merge
        self._effects = effects
        self._family, self.can_regenerate = family, bool(hidden and regenerate)
        self._also, self.writers = tuple(also), tuple(writers)

    @property
    def table(self) -> str:
        return connection.ops.quote_name(self.model._meta.db_table)

    @property
    def stores(self) -> tuple[Store, ...]:
        return (Table(self.model._meta.db_table), *self._also)

    # -- reading

    def plan(self, *, scope: Scope) -> Iterator[Chunk]:
        keys = [f"key_{number}" for number in range(len(self.order))]
        aliased = ", ".join(f"t.{connection.ops.quote_name(column)} AS {key}" for key, column in zip(keys, self.order, strict=True))
        free, spared = self._free(scope)
        # OFFSET 0 has a row's facts taken at the scan, as an erasure takes them. A row that has been through the sort
        # is packed differently, and its size would differ by a few bytes.
        with connection.chunked_cursor() as cursor:
            _fetch_by(cursor, 160)
            cursor.execute(
                f"""
                SELECT number, (array_agg(bound ORDER BY place))[1], (array_agg(bound ORDER BY place))[count(*)],
                       count(*), sum(size)::bigint,
                       encode(sha256(convert_to(string_agg(bound || ' ' || version, E'\\n' ORDER BY place), 'UTF8')), 'hex'),
                       string_agg({_PRINT_SQL}, ''::bytea ORDER BY place)
                FROM (SELECT place, place / {CHUNK_ROWS} AS number, bound, version, size
                      FROM (SELECT row_number() OVER (ORDER BY {", ".join(keys)}) - 1 AS place, bound, version, size
                            FROM (SELECT {aliased}, {self._facts()}
                                  FROM {self.table} t WHERE {self._of_subject(scope)}{free} OFFSET 0) AS facts) AS rows) AS numbered
                GROUP BY number ORDER BY number
                """,
                [*self._subject(scope), *spared],
            )
            for number, low, high, rows, size, digest, prints in cursor:
                yield Chunk(number, low, high, rows, size, digest, bytes(prints))

    def sample(self, *, scope: Scope, limit: int = 20) -> list[Sample]:
        rows = self.model._default_manager.filter(
            **{self.tenant_field: scope.tenant_id, self.subject_field: scope.subject_id}
        ).order_by(*(f"-{column}" for column in self.order))[:limit]
        created = self.ages.get("created", "created_at")
        return [
            Sample(
                id=":".join(str(getattr(row, column)) for column in self.order),
                title=self._title(row)[:120] if self._title else self.title,
                created_at=getattr(row, created, None),
            )
            for row in rows
        ]

    def export(self, *, scope: Scope) -> Iterator[dict[str, Any]]:
        with connection.chunked_cursor() as cursor:
            _fetch_by(cursor, 500)
            cursor.execute(
                f"SELECT {self._row_as_json()} FROM {self.table} t WHERE {self._of_subject(scope)} ORDER BY {self._columns()}",
                self._subject(scope),
            )
            for (row,) in cursor:
                yield opened_row(self.model, row if isinstance(row, dict) else json.loads(row))

    def files(self, *, scope: Scope) -> Iterator[File]:
        if not self.file_fields:
            return
        columns = ", ".join(f"t.{connection.ops.quote_name(column)}" for column in self.file_fields)
        bytes_of = self.model._meta.get_field(self.file_fields[2])
        with connection.chunked_cursor() as cursor:
            # One file at a time, and not as text of twice its size.
            _fetch_by(cursor, 1)
            cursor.cursor.execute(
                f"SELECT {columns} FROM {self.table} t WHERE {self._of_subject(scope)} ORDER BY {self._columns()}",
                self._subject(scope),
                binary=True,
            )
            for sha256, name, data in cursor:
                yield File(sha256, name, bytes(bytes_of.opened(data) if isinstance(bytes_of, Sealed) else data))

    def verify(self, *, scope: Scope) -> int:
        free, spared = self._free(scope)
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT count(*) FROM {self.table} t WHERE {self._of_subject(scope)}{free}", [*self._subject(scope), *spared]
            )
            return cursor.fetchone()[0]

    def held(self, *, scope: Scope) -> Held:
        spares = scope.spared.get(self.key, ())
        if not spares:
            return Held()
        one_by_one = "".join(f", count(*) FILTER (WHERE {spare.sql})" for spare in spares)
        any_of_them, values = _any(spares)
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT count(*), coalesce(sum({self.size_expression}), 0)::bigint{one_by_one}"
                f" FROM {self.table} t WHERE {self._of_subject(scope)} AND {any_of_them}",
                [*(value for spare in spares for value in spare.values), *self._subject(scope), *values],
            )
            rows, size, *each = cursor.fetchone()
        grounds = (
            {"bucket": "held", "rows": number, "matter": spare.matter, "reason": spare.reason, "until": spare.until}
            for spare, number in zip(spares, each, strict=True)
            if number
        )
        return Held(rows, size, tuple(grounds))

    def unowned(self, *, tenant_id: UUID) -> models.QuerySet:
        """The tenant's rows that name no subject. Only rows without a parent: what hangs from one is nobody's for the same
        reason. What was anonymised names nobody on purpose.
        """
        rows = self.model._default_manager.filter(**{self.tenant_field: tenant_id, f"{self.subject_field}__isnull": True})
        if self.ownerless:
            return rows.none()
        if self.group_of:
            rows = rows.filter(**{f"{self.group_of[1]}__isnull": True})
        return rows.filter(self.left_to_anonymise()) if self.anonymise else rows

    def unattributed(self, *, tenant_id: UUID) -> int:
        return self.unowned(tenant_id=tenant_id).count()

    def left_to_anonymise(self) -> Q:
        """Rows whose values anonymising would still change."""
        fields = {field.column: field for field in self.model._meta.concrete_fields}
        left = Q()
        for column, value in {self.subject_field: None, **self.anonymise}.items():
            name = fields[column].attname
            left |= Q(**{f"{name}__isnull": False}) if value is None else ~Q(**{name: value})
        return left

    def effects(self, *, scope: Scope) -> dict[str, int]:
        return self._effects(scope=scope) if self._effects else {}

    # -- changing

    def quiesce(self, *, scope: Scope, deadline: datetime) -> int:
        return self._quiesce(scope=scope, deadline=deadline) if self._quiesce else 0

    def erase(self, *, scope: Scope, chunk: Chunk) -> Erased:
        within, bounds = self._within(chunk)
        # A parent's id leads straight to its rows; as a mere filter, the subject's own index is left out of it.
        is_inside_a_parent = len(bounds) < 2 * len(self.order)
        owner = f"({self._of_subject(scope)}) IS TRUE" if is_inside_a_parent else self._of_subject(scope)
        free, spared = self._free(scope)
        where, values = f"{owner} AND {within}", [*self._subject(scope), *bounds]
        rows, size, prints = (self._anonymise if self.method == "anonymise" else self._delete)(where + free, [*values, *spared])
        unknown = _prints(prints) - _prints(chunk.fingerprints)
        if unknown:
            raise Drift(self.key, len(unknown))
        held = self._held_in(where, values, scope, chunk) if free else 0
        return Erased(rows=rows, size=size, already_absent=chunk.rows - rows - held, held=held)

    def rehome(self, *, tenant_id: UUID, ids: list[UUID]) -> None:
        if self._rehome:
            self._rehome(tenant_id=tenant_id, ids=ids)

    def companions(self, *, tenant_id: UUID, ids: list[UUID]) -> list[UUID]:
        return self._companions(tenant_id=tenant_id, ids=ids) if self._companions else []

    def delete_where(self, where: str, values: list[Any]) -> tuple[int, int]:
        """Delete rows by a condition over alias `t`; returns rows and bytes. For groups: see domain/groups.py."""
        rows, size, _ = self._delete(where, values)
        return rows, size

    def anonymise_where(self, where: str, values: list[Any]) -> tuple[int, int]:
        rows, size, _ = self._anonymise(where, values)
        return rows, size

    def _delete(self, where: str, values: list[Any]) -> tuple[int, int, bytes]:
        # The hash is over what the DELETE itself returned: what goes is what was shown, in one pass.
        return self._fetch(
            f"""
            WITH gone AS (DELETE FROM {self.table} t WHERE {where} RETURNING {self._facts()})
            SELECT count(*), coalesce(sum(size), 0)::bigint, string_agg({_PRINT_SQL}, ''::bytea) FROM gone
            """,
            values,
        )

    def _anonymise(self, where: str, values: list[Any]) -> tuple[int, int, bytes]:
        settings, new = self._settings()
        assignments = ", ".join(f"{column} = {mark}" for column, mark in settings)
        # Both parts read the same snapshot, so the hash is over the rows as they were.
        return self._fetch(
            f"""
            WITH seen AS (SELECT {self._facts()} FROM {self.table} t WHERE {where}),
                 changed AS (UPDATE {self.table} t SET {assignments} WHERE {where} RETURNING 1)
            SELECT (SELECT count(*) FROM changed), coalesce(sum(size), 0)::bigint, string_agg({_PRINT_SQL}, ''::bytea)
            FROM seen
            """,
            [*values, *new, *values],
        )

    def _held_in(self, where: str, values: list[Any], scope: Scope, chunk: Chunk) -> int:
        """Rows of the plan that a hold covers now although none did when the plan was made."""
        covered, spared = _any(scope.spared[self.key])
        _, _, prints = self._fetch(
            f"""
            SELECT count(*), coalesce(sum(size), 0)::bigint, string_agg({_PRINT_SQL}, ''::bytea)
            FROM (SELECT {self._facts()} FROM {self.table} t WHERE {where} AND {covered}) AS kept
            """,
            [*values, *spared],
        )
        return len(_prints(prints) & _prints(chunk.fingerprints))

    # -- SQL

    def _free(self, scope: Scope) -> tuple[str, list[Any]]:
        """An addition to a condition: without the rows that the scope spares."""
        spares = scope.spared.get(self.key, ())
        if not spares:
            return "", []
        covered, values = _any(spares)
        return f" AND ({covered}) IS NOT TRUE", values

    def _settings(self) -> tuple[list[tuple[str, str]], list[Any]]:
        changes = {self.subject_field: None, **(self.anonymise or {})}
        marks = [(connection.ops.quote_name(column), self._mark(column)) for column in changes]
        return marks, [self._fields[column].get_db_prep_save(value, connection) for column, value in changes.items()]

    @property
    def _fields(self) -> dict[str, models.Field]:
        return {field.column: field for field in self.model._meta.concrete_fields}

    def _mark(self, column: str) -> str:
        return f"%s::{self._fields[column].db_type(connection).split(' CHECK')[0]}"

    def _columns(self) -> str:
        return ", ".join(f"t.{connection.ops.quote_name(column)}" for column in self.order)

    def _facts(self) -> str:
        return (
            f"{texts_in_json([self._fields[column] for column in self.order])} AS bound, ({self.row_version})::text AS version, "
            f"({self.size_expression})::bigint AS size"
        )

    def _row_as_json(self) -> str:
        row = f"to_jsonb(t) - '{{{self.tenant_field},{self.subject_field}}}'::text[]"
        if self.export_fields:
            pairs = (f"'{name}', {sql}" for name, sql in self.exported())
            row = f"jsonb_build_object({', '.join(pairs)})"
        if self.provided:
            row += f" || jsonb_build_object('provided_by_subject', ({self.provided}))"
        if self.about.third_party == "redact" and self.redact:
            blank = json.dumps({**dict.fromkeys(self.redact), "redacted": list(self.redact)})
            row += f" || CASE WHEN EXISTS ({self._others()}) THEN '{blank}'::jsonb ELSE '{{}}'::jsonb END"
        return row

    def exported(self) -> list[tuple[str, str]]:
        """Name and SQL of each column of the export."""
        quote = connection.ops.quote_name
        if self.export_fields:
            return [(one, f"t.{quote(one)}") if isinstance(one, str) else one for one in self.export_fields]
        return [(name, f"t.{quote(name)}") for name in self._fields if name not in (self.tenant_field, self.subject_field)]

    def schema(self) -> dict[str, Any]:
        return portable.schema_of(self)

    def load(self, *, rows: Iterable[dict[str, Any]], scope: Scope, files: Callable[[str, str], bytes]) -> int | None:
        return portable.load(self, rows=rows, scope=scope, files=files) if self.restore else None

    def _others(self) -> str:
        """Links of rows to people other than the row's subject."""
        quote = connection.ops.quote_name
        row_id = " || ':' || ".join(f"t.{quote(column)}::text" for column in self.order)
        return (
            f"SELECT FROM governance_subjectlink link WHERE link.tenant_id = t.{quote(self.tenant_field)}"
            f" AND link.category = '{self.key}' AND link.row_id = {row_id} AND link.subject_id <> t.{quote(self.subject_field)}"
        )

    def _of_subject(self, scope: Scope) -> str:
        quote = connection.ops.quote_name
        own = f"t.{quote(self.tenant_field)} = %s AND t.{quote(self.subject_field)} = %s"
        return f"({own} OR {self._named()})" if scope.also.get(self.key) else own

    def _subject(self, scope: Scope) -> list[Any]:
        also = scope.also.get(self.key)
        own = [scope.tenant_id, scope.subject_id]
        return [*own, scope.tenant_id, list(also)] if also else own

    def _within(self, chunk: Chunk) -> tuple[str, list[Any]]:
        """A condition for the rows between the chunk's bounds, and its values.

        What both bounds have in common becomes an equality: inside one large session the planner would otherwise
        take the range for the whole table, and read it for every chunk.
        """
        low, high = json.loads(chunk.low), json.loads(chunk.high)
        columns = [f"t.{connection.ops.quote_name(column)}" for column in self.order]
        marks = [self._mark(column) for column in self.order]
        shared = next((at for at, (one, other) in enumerate(zip(low, high, strict=True)) if one != other), len(low) - 1)
        parts = [f"{column} = {mark}" for column, mark in zip(columns[:shared], marks[:shared], strict=True)]
        rest, rest_marks = ", ".join(columns[shared:]), ", ".join(marks[shared:])
        parts += [f"({rest}) >= ({rest_marks})", f"({rest}) <= ({rest_marks})"]
        return " AND ".join(parts), [*low[:shared], *low[shared:], *high[shared:]]

    def _fetch(self, sql: str, values: list[Any]) -> tuple[int, int, bytes]:
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            rows, size, prints = cursor.fetchone()
        return rows, size, bytes(prints or b"")


# 8 bytes of the key, 8 of the version. A collision could only hide a change whose SHA-256 differs as well.
_PRINT_SQL = "int8send(hashtextextended(bound, 0)) || int8send(hashtextextended(version, 0))"


def _fetch_by(cursor, rows: int) -> None:
    """Set on the driver's cursor: on Django's wrapper around it, it would be without effect."""
    cursor.cursor.itersize = rows


def _any(spares: tuple[Spare, ...]) -> tuple[str, list[Any]]:
    return "(" + " OR ".join(spare.sql for spare in spares) + ")", [value for spare in spares for value in spare.values]


def _prints(data: bytes) -> set[bytes]:
    return {data[at : at + _PRINT] for at in range(0, len(data), _PRINT)}
