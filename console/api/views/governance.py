"""Subjects, requests about them, retention, and the audit trail."""

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from rest_framework.renderers import JSONRenderer

from console.api import etag, pagination
from console.api.authentication import BearerKey, BrowserSession
from console.api.endpoint import NOBODY, Endpoint
from console.api.errors import PreconditionRequired
from console.api.operations import operation
from console.api.serializers import governance as shapes
from console.api.serializers import requests as request_shapes
from console.api.views.responses import ZipRenderer
from governance import queries
from governance.domain import exports, identities, previews, receipts, requests, retention, subjects, trail
from governance.errors import NotFound
from governance.ids import parse
from sessions.threads import in_thread

_CHUNK = 64 * 1024


class Subjects(Endpoint):
    tag = "Subjects"
    permission = {"GET": "subject.search"}

    @operation("Find subjects", query=shapes.SubjectFilters, answer=shapes.Subject, is_page=True)
    def get(self, request):
        """Exact matches only. The search is audited, without what was searched for."""
        return pagination.Page(subjects.search(tenant_id=self.tenant_id, q=self.query["q"], by=self.actor))


class SubjectEndpoint(Endpoint):
    tag = "Subjects"
    path_help = {"ref": "The subject's id or reference, or the calling application's own id of the person."}

    def subject(self, ref):
        return queries.subject_of(self.tenant_id, ref)


class Subject(SubjectEndpoint):
    permission = {"GET": "subject.search"}

    @operation("Read a subject", answer=shapes.Subject, errors=(409,))
    def get(self, request, ref):
        return self.subject(ref)


class PreviewSubject(SubjectEndpoint):
    permission = {"POST": "subject.preview"}

    @operation("Preview a request about a subject", body=shapes.PreviewBody, answer=shapes.Preview, errors=(409, 422, 503))
    def post(self, request, ref):
        """Exactly what an erasure or an export would take, in buckets, and the token that confirms it."""
        made, token = previews.preview(subject=self.subject(ref), by=self.actor, **self.data)
        self.headers["Cache-Control"] = "no-store"
        return described(made, self.actor, token)


class ExportSubject(SubjectEndpoint):
    permission = {"POST": "subject.export"}

    @operation("Export a subject", answer=shapes.SubjectRequest, status=202, errors=(409, 422, 503))
    def post(self, request, ref):
        """Collect everything held about the subject in one archive. Poll the request; its archive_url appears at the end."""
        made = requests.export(subject=self.subject(ref), by=self.actor)
        self.headers["Location"] = f"/api/subject-requests/req_{made.id.hex}"
        return made


class MergeSubject(SubjectEndpoint):
    permission = {"POST": "subject.merge"}

    @operation("Merge subjects", body=shapes.MergeBody, answer=shapes.Subject, errors=(409, 422, 503))
    def post(self, request, ref):
        """Let this subject have everything of another one, whose id takes no data from then on. Runs of both are stopped."""
        return identities.merge(subject=self.subject(ref), other=self.subject(self.data["other"]), by=self.actor)


class SplitSubject(SubjectEndpoint):
    permission = {"POST": "subject.merge"}

    @operation("Split a subject", body=shapes.SplitBody, answer=shapes.Subject, status=201, errors=(409, 422, 503))
    def post(self, request, ref):
        """Give some identifiers and sessions to a new subject, which is answered. Runs are stopped."""
        sessions = [parse("ses", text) for text in self.data["sessions"]]
        made = identities.split(
            subject=self.subject(ref), identifiers=self.data["identifiers"], rows={"sessions": sessions} if sessions else {}, by=self.actor
        )
        self.headers["Location"] = f"/api/subjects/sub_{made.id.hex}"
        return made


class EraseSubject(SubjectEndpoint):
    permission = {"POST": "subject.erase"}

    @operation("Erase a subject", body=shapes.EraseBody, answer=shapes.SubjectRequest, status=202, errors=(409, 422, 503))
    def post(self, request, ref):
        """Carry out what the preview showed. The same token from the same caller returns the same request."""
        made = requests.erase(
            subject=self.subject(ref),
            token=self.data["preview_token"],
            confirm=self.data["confirm"],
            reason=self.data["reason"],
            by=self.actor,
        )
        self.headers["Location"] = f"/api/subject-requests/req_{made.id.hex}"
        return made


class SubjectRequests(Endpoint):
    tag = "Subject requests"
    permission = {"GET": "request.read", "POST": "subject.preview"}

    @operation("List subject requests", query=shapes.RequestFilters, answer=shapes.SubjectRequest, order=("-id",), errors=(409,))
    def get(self, request):
        filters = {name: value for name, value in self.query.items() if name in ("state", "kind", "profile", "due_before")}
        found = queries.requests_of(self.tenant_id, **filters)
        if "subject" in self.query:
            found = found.filter(subject_id=self._subject_id())
        return found.filter(due_at__gte=self.query["due_after"]) if "due_after" in self.query else found

    @operation(
        "Receive a subject request", body=request_shapes.ReceiveBody, answer=shapes.SubjectRequest, status=201, errors=(409,)
    )
    def post(self, request):
        """A person asked for something: the clock starts, nothing is looked at. An open request of that kind is returned."""
        subject = queries.subject_of(self.tenant_id, self.data.pop("subject"))
        made = requests.receive(subject=subject, by=self.actor, **self.data)
        self.headers["Location"] = f"/api/subject-requests/req_{made.id.hex}"
        return made

    def _subject_id(self):
        try:
            return queries.subject_of(self.tenant_id, self.query["subject"]).id
        except NotFound:
            return NOBODY


class RequestEndpoint(Endpoint):
    tag = "Subject requests"
    path_help = {"id": "The request's id, or its reference such as SR-2026-000123."}

    def request_named(self, id):
        return queries.request_by(tenant_id=self.tenant_id, id=id)


class SubjectRequest(RequestEndpoint):
    permission = {"GET": "request.read"}

    @operation("Read a subject request", answer=shapes.SubjectRequestDetail)
    def get(self, request, id):
        return self.request_named(id)

    def preview(self, found) -> dict:
        return described(found, self.actor)


class CancelRequest(RequestEndpoint):
    permission = {"POST": "request.cancel"}

    @operation("Cancel a subject request", body=shapes.CancelBody, answer=shapes.SubjectRequest, errors=(409,))
    def post(self, request, id):
        """Possible until the erasure has begun; then 409 `not_cancellable`."""
        return requests.cancel(request=self.request_named(id), by=self.actor, **self.data)


class Receipt(RequestEndpoint):
    permission = {"GET": "receipt.read"}

    @operation("Read the receipt of a subject request", query=request_shapes.ReceiptVersion, answer=shapes.Receipt)
    def get(self, request, id):
        """What was erased, by category, and how it was verified; signed. 404 before there is one."""
        found = self.request_named(id)
        found.receipt = receipts.version_of(found, self.query.get("version"))
        return found


class Archive(RequestEndpoint):
    permission = {"GET": "subject.export"}
    renderer_classes = [ZipRenderer, JSONRenderer]

    @operation("Download the archive of an export", query=shapes.ArchivePart, answers={(200, "application/zip"): bytes}, errors=(409, 503))
    def get(self, request, id):
        """The archive, decrypted as it is sent. Each download is audited. A large archive has several parts, each a ZIP."""
        found = self.request_named(id)
        export, part = archive_of(found), self.query["part"]
        if part > len(export.parts):
            raise NotFound("The archive has no such part.")
        headers = {"Content-Disposition": f'attachment; filename="{archive_name(found.ref, part, export)}"', "Cache-Control": "no-store"}
        if request.method == "HEAD":
            # Opening the archive is a download, and is recorded as one.
            return HttpResponse(content_type="application/zip", headers=headers)
        file = exports.open_archive(export=export, part=part, by=self.actor)
        return StreamingHttpResponse(pieces(file), content_type="application/zip", headers=headers)


class ArchiveLinks(RequestEndpoint):
    permission = {"POST": "subject.export"}

    @operation("Create one-time download links", answer=shapes.ArchiveLinks, status=201, errors=(409,))
    def post(self, request, id):
        """An address for each part of the archive, to hand to the person. Each works once, without signing in, for as long as the archive lives."""
        export = archive_of(self.request_named(id))
        tokens = exports.make_links(export=export, by=self.actor)
        self.headers["Cache-Control"] = "no-store"
        return {"expires_at": export.expires_at, "links": [{"part": part, "url": link_url(request, token)} for part, token in enumerate(tokens, 1)]}


def archive_of(found):
    export = getattr(found, "export", None)
    if export is None:
        raise NotFound("This request has no archive, or its seven days are over.")
    return export


def archive_name(ref: str, part: int, export) -> str:
    return f"export-{ref}.zip" if len(export.parts) == 1 else f"export-{ref}.{part}.zip"


def link_url(request, token: str) -> str:
    return request.build_absolute_uri(reverse("archive-link", args=[token]))


def described(request, actor, token=None) -> dict:
    """The preview as a document. The titles of samples are content, which keys may not read."""
    document = previews.describe(request=request, token=token)
    if not actor.may("content.read"):
        for category in document["categories"]:
            category["samples"] = [{**sample, "title": None} for sample in category["samples"]]
    return document


async def pieces(file):
    """The bytes of an open file, read in a thread."""
    try:
        while piece := await in_thread(file.read, _CHUNK):
            yield piece
    finally:
        await in_thread(file.close)


class Policies(Endpoint):
    tag = "Retention"
    permission = {"GET": "retention.read", "POST": "retention.edit"}

    @operation("List retention policies", query=shapes.PolicyFilters, answer=shapes.RetentionPolicy, order=("category", "agent", "id"))
    def get(self, request):
        exact = {name: self.query[name] for name in ("category", "agent", "enabled") if self.query.get(name) is not None}
        return queries.policies_of(self.tenant_id).filter(**exact)

    @operation("Create a retention policy", body=shapes.PolicyBody, answer=shapes.RetentionPolicy, status=201, errors=(409, 422))
    def post(self, request):
        """A new policy counts for a week before it deletes anything."""
        policy = retention.create_policy(tenant_id=self.tenant_id, by=self.actor, **self.data)
        self.headers["Location"] = f"/api/retention-policies/pol_{policy.id.hex}"
        self.headers["ETag"] = etag.tag(policy.version)
        return policy


class PolicyEndpoint(Endpoint):
    tag = "Retention"
    path_help = {"id": "The policy's id."}

    def policy(self, id):
        return queries.policy_by(tenant_id=self.tenant_id, id=id)

    def expected(self, policy, sent) -> int:
        """The version that the caller has seen, from the body or from If-Match."""
        if sent is not None:
            return sent
        if "If-Match" not in self.request.headers:
            raise PreconditionRequired("Send the version that you read as `expected_version`, or its ETag as `If-Match`.")
        return etag.expected(self.request, current=policy.version)


class Policy(PolicyEndpoint):
    permission = {"GET": "retention.read", "PATCH": "retention.edit", "DELETE": "retention.edit"}

    @operation("Read a retention policy", answer=shapes.RetentionPolicy)
    def get(self, request, id):
        policy = self.policy(id)
        self.headers["ETag"] = etag.tag(policy.version)
        return policy

    @operation("Change a retention policy", body=shapes.PolicyChanges, answer=shapes.RetentionPolicy, errors=(409, 422, 428))
    def patch(self, request, id):
        policy = self.policy(id)
        changes = dict(self.data)
        expected = self.expected(policy, changes.pop("expected_version", None))
        changed = retention.update_policy(policy=policy, expected_version=expected, by=self.actor, **changes)
        self.headers["ETag"] = etag.tag(changed.version)
        return changed

    @operation("Delete a retention policy", query=shapes.PolicyVersionQuery, body=shapes.PolicyVersion, errors=(409, 422, 428))
    def delete(self, request, id):
        policy = self.policy(id)
        sent = self.data.get("expected_version", self.query.get("expected_version"))
        retention.delete_policy(policy=policy, expected_version=self.expected(policy, sent), by=self.actor)


class PreviewPolicy(PolicyEndpoint):
    permission = {"POST": "retention.read"}

    @operation("Preview a retention policy", answer=shapes.PolicyPreview, errors=(409, 422))
    def post(self, request, id):
        """What a run would delete now, by day, and what it would leave and why. Deletes nothing."""
        return retention.preview_policy(policy=self.policy(id), by=self.actor)


class RunPolicy(PolicyEndpoint):
    permission = {"POST": "retention.run"}

    @operation("Run a retention policy", body=shapes.PolicyVersion, answer=shapes.RetentionRun, status=202, errors=(409, 422, 428))
    def post(self, request, id):
        """409 `needs_approval` when it would be the policy's first and take a large share; see the preview."""
        policy = self.policy(id)
        expected = self.expected(policy, self.data.get("expected_version"))
        return retention.run_policy(policy=policy, expected_version=expected, by=self.actor)


class ApprovePolicy(PolicyEndpoint):
    """For people only: with the session of a browser and its CSRF token. A key is told so."""

    authentication_classes = [BrowserSession, BearerKey]
    permission = {"POST": "retention.approve"}

    @operation("Approve a retention policy", body=shapes.PolicyVersion, answer=shapes.RetentionPolicy, errors=(409, 422, 428))
    def post(self, request, id):
        """Agree to this version, so that its first run may take a large share. Never by a key, and never by whoever set it."""
        policy = self.policy(id)
        expected = self.expected(policy, self.data.get("expected_version"))
        return retention.approve_policy(policy=policy, expected_version=expected, by=self.actor)


class RetentionRuns(Endpoint):
    tag = "Retention"
    permission = {"GET": "retention.read"}

    @operation("List retention runs", query=shapes.RetentionRunFilters, answer=shapes.RetentionRun, order=("-id",))
    def get(self, request):
        policy_id = parse("pol", self.query["policy"]) if "policy" in self.query else None
        found = queries.retention_runs_of(self.tenant_id, policy_id=policy_id)
        return found.filter(state=self.query["state"]) if "state" in self.query else found


class Audit(Endpoint):
    tag = "Audit"
    permission = {"GET": "audit.read"}

    @operation("List audit events", query=shapes.AuditFilters, answer=shapes.AuditEvent, order=("-id",))
    def get(self, request):
        """Who did what to what, newest first."""
        filters = {name: value for name, value in self.query.items() if name not in ("limit", "cursor")}
        return queries.audit_events(self.tenant_id, **filters)


class VerifyAudit(Endpoint):
    tag = "Audit"
    permission = {"GET": "audit.verify"}

    @operation("Verify the audit trail", answer=shapes.AuditVerdict)
    def get(self, request):
        """Recompute the whole chain and hold it against the signed checkpoints outside the database."""
        return trail.verify(tenant_id=self.tenant_id)
