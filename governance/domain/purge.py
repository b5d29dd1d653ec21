"""Bytes: out of tables and indexes, out of WAL, out of backups. What an erasure means to somebody who reads the disk.

DELETE hides a row; its bytes stay in the table's file, in index pages, in the planner's statistics, in WAL and in
backups. Removing them costs far more than the erasure, so it is coalesced per table and done apart: first the files
(`purged_at`), then WAL and the declared backups (the horizon). Each is told in an addendum to the receipt.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Coalesce, Greatest

from governance.domain import clock, jobs, receipts, registry
from governance.models import ErasureStep, PurgeJob, RequestPurge, SubjectRequest

log = structlog.get_logger("lethe.governance")

ALARM = timedelta(hours=1)
LOCK_TIMEOUT_MS = 800
# What every request writes beside the categories: bounds of rows, samples, hashes.
OWN_TABLES = ("governance_planchunk", "governance_subjectrequest", "governance_erasurestep")



class MayNotMaintain(DatabaseError):
    """VACUUM passes such a table by with a warning: without this, a purge would say that it was cleaned."""


# -- asking


def ask(*, request: SubjectRequest) -> RequestPurge:
    """Have the files of everything the request touched cleaned, in the transaction that ends it."""
    touched = set(ErasureStep.objects.filter(request=request, rows__gt=0).values_list("category", flat=True))
    known = registry.categories()
    stores = (store for key in touched if key in known for store in known[key].stores)
    tables = sorted({store.name for store in stores if isinstance(store, registry.Table)} | set(OWN_TABLES))
    xid = _latest_xid()
    PurgeJob.objects.bulk_create([PurgeJob(table=table) for table in tables], ignore_conflicts=True)
    PurgeJob.objects.filter(table__in=tables).update(
        state=PurgeJob.State.QUEUED,
        wanted_xid=Greatest(F("wanted_xid"), Value(xid)),
        requested_at=Coalesce(F("requested_at"), clock.ClockTime()),
    )
    return RequestPurge.objects.create(request=request, tables=tables, xid=xid)


# -- the files


def work(*, now: bool = False) -> dict[str, int]:
    """Purge every table whose oldest erasure has waited long enough, or with `now` each that waits; then look at the
    horizons. Returns counts. Outside any transaction: VACUUM and REINDEX CONCURRENTLY have their own.
    """
    patience = timedelta(0) if now else timedelta(minutes=settings.LETHE["purge_after_minutes"])
    due = PurgeJob.objects.filter(state=PurgeJob.State.QUEUED, requested_at__lte=clock.after(-patience))
    purged = sum(_purge(job_id) for job_id in due.order_by("requested_at").values_list("id", flat=True))
    return {"tables": purged, "requests": _close_purged(), "horizons": _close_horizons()}


def is_due() -> bool:
    """Whether `work` would find anything, for the sweeper."""
    waited = timedelta(minutes=settings.LETHE["purge_after_minutes"])
    free = PurgeJob.objects.filter(state=PurgeJob.State.QUEUED, requested_at__lte=clock.after(-waited))
    return free.exists() or RequestPurge.objects.filter(purged_at__isnull=False, wal_passed_at=None).exists()


def _purge(job_id) -> bool:
    lease = jobs.claim(PurgeJob, job_id, states=(PurgeJob.State.QUEUED,))
    if lease is None:
        return False
    job = PurgeJob.objects.get(pk=job_id)
    waits = _holding_back(job.wanted_xid)
    if waits:
        level = log.error if job.requested_at < clock.now() - ALARM else log.info
        level("purge_waits", table=job.table, for_backends=waits)
        lease.release()
        return False
    try:
        with jobs.heartbeat(lease):
            clean_table(job.table)
    except DatabaseError as error:
        lease.fail(code="purge_failed", message=f"{type(error).__name__} while {job.table} was cleaned.", state=PurgeJob.State.QUEUED)
        return False
    with transaction.atomic():
        newer = PurgeJob.objects.select_for_update().get(pk=job_id).wanted_xid > job.wanted_xid
        lease.release(
            state=PurgeJob.State.QUEUED if newer else PurgeJob.State.IDLE,
            requested_at=clock.ClockTime() if newer else None,
            done_xid=job.wanted_xid, done_at=clock.ClockTime(), attempts=0, failure=None,
        )  # fmt: skip
    return True


def clean_table(table: str) -> None:
    """Remove dead bytes from the table's files. A small table is rewritten; a large one is vacuumed, and the indexes that
    hold content are built anew beside it without stopping anybody. Its freed pages keep bytes until they are used again.
    """
    if not _names("SELECT %s WHERE to_regclass(%s) IS NOT NULL", table, table):
        # Dropped since, or never a table.
        return
    if not _may_maintain(table):
        raise MayNotMaintain(f"The database's role may not maintain {table}.")
    if _size(table) <= settings.LETHE["purge_rewrite_mb"] * 1024 * 1024 and _rewrite(table):
        return
    quote = connection.ops.quote_name
    _run(f"VACUUM (INDEX_CLEANUP ON, ANALYZE) {quote(table)}")
    for index in content_indexes(table):
        _run(f"REINDEX INDEX CONCURRENTLY {quote(index)}")
    _names("SELECT purge_drop_leftovers(%s)::text", table)


def content_indexes(table: str) -> list[str]:
    """Indexes whose pages hold what people wrote: over text, JSON, bytes, vectors or an expression. From the catalogue,
    so that no list can be forgotten."""
    return _names(
        """
        SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
        WHERE t.relname = %s AND x.indisvalid AND (
            x.indexprs IS NOT NULL OR EXISTS (
                SELECT FROM unnest(x.indkey) AS key JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = key
                JOIN pg_type y ON y.oid = a.atttypid
                WHERE y.typcategory = 'S' OR y.typname IN ('json', 'jsonb', 'bytea', 'tsvector', 'vector', 'halfvec')
                   OR y.typname LIKE '\\_%%'))
        ORDER BY 1
        """,
        table,
    )


def _rewrite(table: str) -> bool:
    """VACUUM FULL, unless somebody holds the table longer than a moment."""
    try:
        _run(f"SET lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
        _run(f"VACUUM (FULL, ANALYZE) {connection.ops.quote_name(table)}")
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) != "55P03":
            raise
        return False
    finally:
        _run("RESET lock_timeout")
    return True


def _holding_back(xid: int) -> int:
    """How many transactions, snapshots, slots and prepared transactions may still need rows that were deleted up to this
    one. Transactions of other databases of the server count: a rewrite keeps what was visible when the oldest began.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*) FROM (
                SELECT backend_xmin AS xmin FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()
                UNION ALL SELECT backend_xid FROM pg_stat_activity WHERE pid <> pg_backend_pid()
                UNION ALL SELECT xmin FROM pg_replication_slots UNION ALL SELECT transaction FROM pg_prepared_xacts
            ) AS held
            WHERE xmin IS NOT NULL AND age(xmin) >= age((%s::bigint %% 4294967296)::text::xid)
            """,
            [xid],
        )
        return cursor.fetchone()[0]


def _latest_xid() -> int:
    """The number of this transaction: what was deleted until now has it or a smaller one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        return cursor.fetchone()[0]


# -- the requests


def _close_purged() -> int:
    """Requests all of whose tables are clean: note it, and say so in their receipts."""
    done = dict(PurgeJob.objects.values_list("table", "done_xid"))
    ready = [
        purge
        for purge in RequestPurge.objects.filter(purged_at=None).select_related("request")
        if all(done.get(table, 0) >= purge.xid for table in purge.tables)
    ]
    if not ready or not _clean_statistics():
        return 0
    lsn = _checkpoint()
    for purge in ready:
        now = clock.now()
        with transaction.atomic():
            if not RequestPurge.objects.filter(pk=purge.pk, purged_at=None).update(purged_at=now, purge_lsn=lsn):
                continue
            days = settings.LETHE["backup_days"]
            until = None if days is None else _text(now + timedelta(days=days))
            receipts.addendum(
                request=purge.request,
                purge={"state": "purged", "purged_at": _text(now)},
                horizons={"backups_until": until, "source": "operator_declared" if days is not None else "not_declared"},
            )
    return len(ready)


def _close_horizons() -> int:
    """Requests whose bytes are in no WAL file any more."""
    open_ones = list(RequestPurge.objects.filter(purged_at__isnull=False, wal_passed_at=None).select_related("request"))
    if not open_ones:
        return 0
    oldest = _oldest_wal()
    passed = 0
    for purge in open_ones:
        if oldest is None or oldest <= _position(purge.purge_lsn):
            continue
        now = clock.now()
        with transaction.atomic():
            if RequestPurge.objects.filter(pk=purge.pk, wal_passed_at=None).update(wal_passed_at=now):
                receipts.addendum(request=purge.request, horizons={"wal_until": _text(now)})
                passed += 1
    return passed


def _clean_statistics() -> bool:
    """The planner keeps common values of columns; ANALYZE replaced them, and the old ones are dead rows like others.
    False while somebody may still see those."""
    if _holding_back(_latest_xid()):
        return False
    for table in ("pg_catalog.pg_statistic", "pg_catalog.pg_statistic_ext_data"):
        try:
            if not _may_maintain(table):
                raise MayNotMaintain
            _run(f"VACUUM (FULL) {table}")
        except DatabaseError as error:
            log.warning("statistics_not_cleaned", table=table, reason=type(error.__cause__ or error).__name__)
    return True


def _checkpoint() -> str:
    """Write everything to the files; where WAL ends now. A role that may not ask for it waits for the next regular one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        (lsn,) = cursor.fetchone()
    for statement in ("SELECT purge_switch_wal()", "CHECKPOINT"):
        try:
            _run(statement)
        except DatabaseError as error:
            log.info("checkpoint_not_allowed", reason=type(error.__cause__ or error).__name__)
    return lsn


def _oldest_wal() -> int | None:
    """The position at which the oldest WAL file begins, or an older one that a replication slot needs. None when the
    role may not see it."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT min(name), (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size'),"
                " (SELECT min(restart_lsn)::text FROM pg_replication_slots)"
                " FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'"
            )
            name, size, slot = cursor.fetchone()
    except DatabaseError:
        return None
    # 8 hex digits each of timeline, upper half of the position, and number of the segment in the lower half.
    oldest = (int(name[8:16], 16) << 32) + int(name[16:], 16) * size
    return min(oldest, _position(slot)) if slot else oldest


def _position(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return int(high, 16) << 32 | int(low, 16)


# -- SQL


def _size(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(pg_table_size(to_regclass(%s)), 0)", [table])
        return cursor.fetchone()[0]


def _may_maintain(table: str) -> bool:
    """As PostgreSQL decides it for VACUUM: by the privilege, or as the owner of the database."""
    [answer] = _names(
        "SELECT has_table_privilege(to_regclass(%s), 'MAINTAIN') OR pg_has_role(datdba, 'USAGE')"
        " FROM pg_database WHERE datname = current_database()",
        table,
    )
    return answer


def _names(sql: str, *values: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return [name for (name,) in cursor.fetchall()]


def _run(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _text(time) -> str:
    return time.isoformat().replace("+00:00", "Z")


def waiting() -> Iterable[PurgeJob]:
    """Tables that wait, the longest first."""
    return PurgeJob.objects.filter(state=PurgeJob.State.QUEUED).order_by("requested_at")
