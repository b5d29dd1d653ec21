"""The audit trail as evidence: verified, exported, and pruned from its beginning."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from governance import chain, signing
from governance.actors import Actor
from governance.domain import anchors, audit
from governance.domain.snapshots import snapshot
from governance.errors import Conflict, Invalid
from governance.models import AuditBoundary, AuditHead

VERDICTS = {
    "valid": "Every event is as it was written, and the end agrees with a signed checkpoint outside the database.",
    "altered": "An event is not what was written: its content or its link to the one before it was changed.",
    "gap": "Events are missing between others, or from the beginning.",
    "fork": "Two events claim the same place.",
    "truncated": "The last events are missing.",
    "not_anchored": "The events fit together, but no signed checkpoint outside the database vouches for them yet.",
}
# The worst first: what a chain is called when several things are wrong with it.
_SEVERITY = ("fork", "gap", "altered", "truncated", "not_anchored")


class NotPrunable(Conflict):
    code, title = "not_prunable", "The trail cannot be pruned"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`first_bad_seq` is the place of the finding, where it has one. `anchor` is the newest signed checkpoint:
    {"seq", "matches", "at"}, or None."""

    verdict: str
    from_seq: int | None
    to_seq: int | None
    first_bad_seq: int | None
    anchor: dict[str, Any] | None

    @property
    def is_valid(self) -> bool:
        return self.verdict == "valid"

    @property
    def sentence(self) -> str:
        return VERDICTS[self.verdict]


def verify(*, tenant_id: UUID) -> Verdict:
    """Recompute the tenant's whole chain from what is stored, and hold it against the head and the signed checkpoints."""
    # First, so that they are no newer than the events that are read.
    checkpoints = anchors.read(tenant_id=tenant_id)
    with snapshot():
        boundary = _boundary(tenant_id)
        start = boundary.through_seq if boundary else 0
        before = bytes(boundary.hash) if boundary else chain.GENESIS
        facts = _facts(tenant_id, start, before)
        head = AuditHead.objects.filter(tenant_id=tenant_id).first()
        known = _hashes(tenant_id, [entry["seq"] for entry in checkpoints])
    if boundary:
        known[start] = before.hex()
    end = facts["to_seq"] or start
    findings = {name: facts[name] for name in ("fork", "gap", "altered") if facts[name] is not None}
    if facts["unplaced"]:
        findings.setdefault("altered", None)
    if boundary and not _is_genuine(boundary):
        findings["gap"] = start
    if (head.seq if head else 0) > end or any(entry["seq"] > end for entry in checkpoints):
        findings["truncated"] = end + 1
    strange = [entry["seq"] for entry in checkpoints if start <= entry["seq"] <= end and known.get(entry["seq"]) != entry["hash"]]
    if strange and "gap" not in findings:
        findings.setdefault("altered", min(strange))
    if not checkpoints and end:
        findings["not_anchored"] = None
    verdict = next((name for name in _SEVERITY if name in findings), "valid")
    newest = checkpoints[-1] if checkpoints else None
    anchor = newest and {
        "seq": newest["seq"], "matches": known.get(newest["seq"]) == newest["hash"], "at": newest["at"],
    }  # fmt: skip
    return Verdict(verdict, facts["from_seq"], facts["to_seq"], findings.get(verdict), anchor)


def _facts(tenant_id: UUID, start: int, before: bytes) -> dict[str, Any]:
    """What one pass over the chain finds: its bounds, and the first place of each defect."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH links AS (
                SELECT e.seq, e.prev_hash, e.hash, {chain.hash_sql("e")} AS computed,
                       lag(e.seq, 1, %(start)s::bigint) OVER w AS last_seq, lag(e.hash, 1, %(before)s::bytea) OVER w AS last_hash
                FROM governance_auditevent e WHERE e.tenant_id = %(tenant)s AND e.seq > %(start)s
                WINDOW w AS (ORDER BY e.seq, e.id)
            )
            SELECT min(seq), max(seq),
                   min(seq) FILTER (WHERE seq = last_seq OR prev_hash IN (
                       SELECT prev_hash FROM links GROUP BY prev_hash HAVING count(*) > 1)),
                   min(seq) FILTER (WHERE seq > last_seq + 1),
                   min(seq) FILTER (WHERE hash <> computed OR seq = last_seq + 1 AND prev_hash <> last_hash)
            FROM links
            """,
            {"tenant": tenant_id, "start": start, "before": before},
        )
        facts = dict(zip(("from_seq", "to_seq", "fork", "gap", "altered"), cursor.fetchone(), strict=True))
        cursor.execute("SELECT count(*) FROM governance_auditevent WHERE tenant_id = %s AND seq IS NULL", [tenant_id])
        return facts | {"unplaced": cursor.fetchone()[0]}


def _hashes(tenant_id: UUID, seqs: list[int]) -> dict[int, str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seq, encode(hash, 'hex') FROM governance_auditevent WHERE tenant_id = %s AND seq = ANY(%s)",
            [tenant_id, seqs],
        )
        return dict(cursor.fetchall())


# -- export


def export_lines(
    *, tenant_id: UUID, after: datetime | None = None, before: datetime | None = None, through_seq: int | None = None
) -> Iterator[bytes]:
    """The events of a range as JSON lines with their hashes, in the order of the chain. Times are half open."""
    pairs = ", ".join(f"'{name}', {chain.field_sql(name, 'e')}" for name in chain.FIELDS)
    where, values = "e.tenant_id = %s AND e.seq IS NOT NULL", [tenant_id]
    for condition, value in (("e.at >= %s", after), ("e.at < %s", before), ("e.seq <= %s", through_seq)):
        if value is not None:
            where, values = f"{where} AND {condition}", [*values, value]
    with transaction.atomic(), connection.chunked_cursor() as cursor:
        cursor.itersize = 1000
        cursor.execute(
            f"SELECT jsonb_build_object({pairs}, 'hash', encode(e.hash, 'hex'))::text"
            f" FROM governance_auditevent e WHERE {where} ORDER BY e.seq",
            values,
        )
        for (line,) in cursor:
            yield line.encode() + b"\n"


def record_export(*, by: Actor, after: datetime | None = None, before: datetime | None = None) -> None:
    """Who took a copy of the trail is part of it."""
    by.require("audit.read")
    audit.record("audit.exported", by=by, object_type="audit", after=after, before=before)


def check_lines(lines: Iterator[bytes], *, start: int = 0, before: bytes = chain.GENESIS) -> tuple[int, int, bytes]:
    """Recompute exported events: rows, last seq and last hash. Raises Invalid where they do not form one chain.

    Needs no database. An export of a range in the middle is checked from its first event's own predecessor: pass its
    `seq - 1` and `prev_hash`.
    """
    rows, seq, last = 0, start, before
    for line in lines:
        event = chain.read(line)
        digest = hashlib.sha256(chain.canonical(event)).digest()
        if event["seq"] != seq + 1 or bytes.fromhex(event["prev_hash"]) != last or digest.hex() != event["hash"]:
            raise Invalid(f"The exported events do not form one chain at number {event['seq']}.")
        rows, seq, last = rows + 1, event["seq"], digest
    return rows, seq, last


# -- pruning


def prune(*, tenant_id: UUID, through_seq: int, to: Path, by: Actor) -> AuditBoundary:
    """Remove the beginning of the chain up to and including `through_seq`, after writing it to the file `to`.

    The whole chain is verified first and the file is read back. A signed row stays that says where the chain begins now. Raises
    NotPrunable for a chain that is not valid, and for one whose end would go: at least one event stays.
    """
    verdict = verify(tenant_id=tenant_id)
    if not verdict.is_valid:
        raise NotPrunable(f"{verdict.sentence} Only a valid trail can be pruned.", verdict=verdict.verdict)
    if not verdict.from_seq <= through_seq < verdict.to_seq:
        raise NotPrunable(f"Give a number from {verdict.from_seq} to {verdict.to_seq - 1}; the last event stays.")
    boundary = _boundary(tenant_id)
    start, before = (boundary.through_seq, bytes(boundary.hash)) if boundary else (0, chain.GENESIS)
    digest = _write(to, export_lines(tenant_id=tenant_id, through_seq=through_seq))
    with to.open("rb") as file:
        rows, seq, last = check_lines(file, start=start, before=before)
    if seq != through_seq:
        raise NotPrunable("The exported file does not reach the event it should end with.")
    with transaction.atomic():
        made = AuditBoundary(tenant_id=tenant_id, through_seq=seq, hash=last, rows=rows, export_sha256=digest)
        made.signature = signing.signed(_statement(made))["signature"]
        made.save(force_insert=True)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM governance_auditevent WHERE tenant_id = %s AND seq <= %s", [tenant_id, seq])
        audit.record("audit.pruned", by=by, object_type="audit", through=seq, rows=rows, export=f"sha256:{digest}")
    return made


def _write(path: Path, lines: Iterator[bytes]) -> str:
    """The SHA-256 of what was written. Refuses to overwrite."""
    digest = hashlib.sha256()
    try:
        with path.open("xb") as file:
            for line in lines:
                digest.update(line)
                file.write(line)
    except FileExistsError:
        raise Invalid(f"{path} exists already. Name a new file.") from None
    return digest.hexdigest()


def _boundary(tenant_id: UUID) -> AuditBoundary | None:
    return AuditBoundary.objects.filter(tenant_id=tenant_id).order_by("-through_seq").first()


def _statement(boundary: AuditBoundary) -> dict[str, Any]:
    return {
        "schema": "lethe.audit-boundary/1",
        "tenant": boundary.tenant_id.hex,
        "through_seq": boundary.through_seq,
        "hash": bytes(boundary.hash).hex(),
        "rows": boundary.rows,
        "export_sha256": boundary.export_sha256,
    }


def _is_genuine(boundary: AuditBoundary) -> bool:
    return signing.is_signed({**_statement(boundary), "signature": boundary.signature})


def as_json(verdict: Verdict) -> str:
    """For the command line."""
    return json.dumps({name: getattr(verdict, name) for name in Verdict.__slots__})
