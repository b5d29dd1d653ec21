from django.db.models import Count, Sum
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.api.operations import Paging
from console.api.serializers.base import Id, Json, JsonObject, Name, Output, Strict, Text, Time
from governance.domain import clocks, receipts, trail
from governance.models import RetentionPolicy as PolicyModel
from governance.models import RetentionRun as RetentionRunModel
from governance.models import Subject as SubjectModel
from governance.models import SubjectRequest as RequestModel

PROFILES = ["gdpr", "ccpa", "lgpd"]


# Subjects
class SubjectFilters(serializers.Serializer):
    q = serializers.CharField(
        max_length=200, trim_whitespace=False, help_text="An identifier of any kind, an id or a reference such as S-7Q4K-2M9D. Matched exactly."
    )


class Subject(Output):
    """A person, without anything that names them outside."""

    id = Id("sub")
    display_ref = serializers.CharField()
    state = serializers.ChoiceField(SubjectModel.State.choices)
    created_at = Time()


class MergeBody(Strict):
    other = Text(max_length=200, help_text="The subject whose data moves here: its id, reference or identifier.")


class SplitBody(Strict):
    identifiers = serializers.ListField(child=Text(max_length=200), required=False, default=list, max_length=50, help_text="What names the other person.")
    sessions = serializers.ListField(child=serializers.CharField(max_length=64), required=False, default=list, max_length=1000, help_text="Ids of sessions that are theirs.")


class PreviewBody(Strict):
    kind = serializers.ChoiceField(["erase", "export"], default="erase")
    profile = serializers.ChoiceField(PROFILES, default="gdpr")
    received_at = Time(required=False, allow_null=True, default=None, help_text="When the person asked; now, when it is left out.")


class Sample(Output):
    id = serializers.CharField()
    title = serializers.CharField(allow_null=True, help_text="Null for API keys: titles are content.")
    created_at = Time(allow_null=True)


class PreviewedCategory(Output):
    key = serializers.CharField()
    title = serializers.CharField()
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField()
    buckets = JsonObject(help_text="Rows by what would happen to them; they add up to `rows`.")
    grounds = Json(help_text="Why rows are kept.")
    samples = Sample(many=True)


class Preview(Output):
    """Exactly what would go, and the token that confirms it."""

    request_id = serializers.CharField()
    request_ref = serializers.CharField()
    kind = serializers.ChoiceField(RequestModel.Kind.choices)
    state = serializers.ChoiceField(RequestModel.State.choices)
    due_at = serializers.CharField(allow_null=True)
    digest = serializers.CharField()
    preview_token = serializers.CharField(allow_null=True)
    token_expires_at = serializers.CharField(allow_null=True)
    unattributed_in_tenant = serializers.IntegerField(help_text="Rows of the tenant that belong to nobody known.")
    categories = PreviewedCategory(many=True)


class EraseBody(Strict):
    preview_token = Text(max_length=4000)
    confirm = Text(max_length=200, help_text="The subject's reference, or the id exactly as in the path.")
    reason = serializers.RegexField(r"^[a-z][a-z0-9_]{0,39}$", default="subject_request", help_text="A code, such as subject_request.")


class CancelBody(Strict):
    reason = serializers.RegexField(r"^[a-z][a-z0-9_]{0,39}$", default="withdrawn", help_text="A code, such as withdrawn.")
    text = serializers.CharField(required=False, default="", allow_blank=True, max_length=10_000, help_text="What the person was told; a refusal needs it.")


class RequestFilters(Paging):
    state = serializers.ChoiceField(RequestModel.State.choices, required=False)
    kind = serializers.ChoiceField(RequestModel.Kind.choices, required=False)
    profile = serializers.ChoiceField(PROFILES, required=False)
    subject = serializers.CharField(required=False, max_length=200, help_text="A subject's id or reference.")
    due_before = Time(required=False)
    due_after = Time(required=False)


class SubjectRequest(Output):
    """One request about a subject, from its receipt to its proof."""

    id = Id("req")
    ref = serializers.CharField()
    kind = serializers.ChoiceField(RequestModel.Kind.choices)
    state = serializers.ChoiceField(RequestModel.State.choices)
    subject_id = Id("sub")
    reason = serializers.CharField()
    profile = serializers.CharField()
    received_at = Time()
    due_at = Time(allow_null=True, help_text="What binds now: an extension or a pause has moved it.")
    extended_until = Time(allow_null=True)
    first_due_at = Time(allow_null=True, help_text="By when a first answer is due, where the profile asks for one.")
    first_answered_at = Time(allow_null=True)
    approval_expires_at = Time(allow_null=True, help_text="Until then a second person may agree.")
    approved_at = Time(allow_null=True)
    break_glass = serializers.BooleanField(help_text="Started by one person although the tenant's rules ask for two.")
    logically_erased_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)


class SubjectRequestDetail(SubjectRequest):
    clock = serializers.SerializerMethodField(help_text="The deadline, and how much of its time has passed: 0 to 1 and beyond.")
    progress = serializers.SerializerMethodField(help_text="What the erasure has done.")
    preview = serializers.SerializerMethodField(help_text="What was counted, once there is a preview.")
    drift = Json(help_text="What changed after the preview.")
    corrections = Json(help_text="What was put right: [{category, what, rows}].")
    alarms = serializers.SerializerMethodField(help_text="What was raised, such as used_50 or overdue.")
    recipients = serializers.SerializerMethodField(help_text="Those who received such data: [{ref, told_at, acknowledged_at}].")
    failure = Json()
    archive_url = serializers.SerializerMethodField(help_text="Where the archive of an export is.")

    def get_clock(self, request) -> dict:
        used = clocks.used(request, timezone.now())
        return {
            "profile": request.profile,
            "due_at": Time().to_representation(request.due_at) if request.due_at else None,
            "used": round(used, 2) if used is not None else None,
            "paused_seconds": request.paused_seconds,
            "is_paused": request.paused_at is not None,
        }

    def get_alarms(self, request) -> list[str]:
        return sorted(alarm.kind for alarm in request.alarms.all())

    def get_recipients(self, request) -> list[dict]:
        return receipts.recipients_of(request)

    def get_progress(self, request) -> dict:
        done = request.steps.aggregate(steps=Count("id"), rows=Sum("rows"))
        return {
            "steps_done": done["steps"],
            "steps_total": request.chunks.count(),
            "rows_done": done["rows"] or 0,
            "attempts": request.attempts,
        }

    @extend_schema_field(Preview(allow_null=True))
    def get_preview(self, request):
        return self.context["view"].preview(request) if request.preview else None

    def get_archive_url(self, request) -> str | None:
        has_archive = getattr(request, "export", None) is not None
        return f"/api/subject-requests/req_{request.id.hex}/archive" if has_archive else None


class ArchivePart(Strict):
    part = serializers.IntegerField(default=1, min_value=1, max_value=10_000, help_text="Which part of a large archive.")


class ArchiveLink(Output):
    part = serializers.IntegerField()
    url = serializers.CharField(help_text="Works once. It cannot be read again.")


class ArchiveLinks(Output):
    """Addresses that download an archive, part by part, without signing in."""

    expires_at = Time()
    links = ArchiveLink(many=True)


class Receipt(Output):
    """Evidence of what was done."""

    request_id = Id("req", source="id")
    ref = serializers.CharField()
    receipt = JsonObject()


# Retention
class PolicyBody(Strict):
    """Give `days` or `months`."""

    category = Name(max_length=40)
    agent = Name(required=False, default="", allow_blank=True, max_length=64, help_text="Narrows the policy to one agent.")
    age_basis = serializers.ChoiceField(PolicyModel.AgeBasis.choices, default="ended")
    days = serializers.IntegerField(required=False, min_value=1, max_value=36_500, help_text="Of 24 hours.")
    months = serializers.IntegerField(required=False, min_value=1, max_value=1_200, help_text="Of the tenant's calendar, instead of days; 12 are a year.")
    min_keep = serializers.IntegerField(default=0, min_value=0, max_value=10_000, help_text="So many of each subject's newest rows stay, however old.")
    action = serializers.ChoiceField(PolicyModel.Action.choices, default="delete")


class PolicyChanges(Strict):
    expected_version = serializers.IntegerField(required=False, min_value=1, max_value=2**31 - 1, help_text="The version that was read. An If-Match header says the same.")
    age_basis = serializers.ChoiceField(PolicyModel.AgeBasis.choices, required=False)
    days = serializers.IntegerField(required=False, min_value=1, max_value=36_500, help_text="Of 24 hours.")
    months = serializers.IntegerField(required=False, min_value=1, max_value=1_200, help_text="Of the tenant's calendar, instead of days; 12 are a year.")
    min_keep = serializers.IntegerField(required=False, min_value=0, max_value=10_000)
    action = serializers.ChoiceField(PolicyModel.Action.choices, required=False)
    enabled = serializers.BooleanField(required=False)


class PolicyVersion(Strict):
    expected_version = serializers.IntegerField(required=False, min_value=1, max_value=2**31 - 1, help_text="The version that was read. An If-Match header says the same.")


class PolicyVersionQuery(serializers.Serializer):
    expected_version = serializers.IntegerField(required=False, min_value=1, max_value=2**31 - 1)


class PolicyFilters(Paging):
    category = serializers.CharField(required=False, max_length=40)
    agent = serializers.CharField(required=False, max_length=64)
    enabled = serializers.BooleanField(required=False, allow_null=True, default=None)


class RetentionPolicy(Output):
    """How long a category is kept, and what happens then."""

    id = Id("pol")
    category = serializers.CharField()
    agent = serializers.CharField(help_text="Empty for the whole tenant.")
    age_basis = serializers.ChoiceField(PolicyModel.AgeBasis.choices)
    days = serializers.IntegerField(allow_null=True)
    months = serializers.IntegerField(allow_null=True, help_text="Instead of days; 12 are a year.")
    min_keep = serializers.IntegerField(help_text="So many of each subject's newest rows stay, however old.")
    action = serializers.ChoiceField(PolicyModel.Action.choices)
    enabled = serializers.BooleanField()
    dry_run_until = Time(allow_null=True, help_text="Until then the policy counts and deletes nothing.")
    version = serializers.IntegerField()
    approved_version = serializers.IntegerField(allow_null=True, help_text="The version that a second person agreed to.")
    approved_at = Time(allow_null=True)
    created_at = Time()
    updated_at = Time()


class Measure(Output):
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField()


class PolicyPreview(Output):
    """What a run would delete now."""

    policy_version = serializers.IntegerField()
    cutoff = serializers.CharField(help_text="What is older would go.")
    eligible = Measure()
    share_of_table = serializers.FloatField(help_text="0 to 1.")
    excluded = JsonObject(help_text="Rows that stay although they are old enough, by reason.")
    by_day = Json(help_text="Rows by the day of their age: [{day, rows}].")
    coming_by_day = Json(help_text="The same of rows that are due within two weeks.")
    needs_approval = serializers.BooleanField(help_text="Whether a second person must agree before a run takes so much.")
    oldest_overdue_seconds = serializers.IntegerField(help_text="How long the oldest row that would go has been past the cut-off.")


class RetentionRunFilters(Paging):
    policy = serializers.CharField(required=False, max_length=40, help_text="A policy's id.")
    state = serializers.ChoiceField(RetentionRunModel.State.choices, required=False)


class RetentionRun(Output):
    """One execution of a policy."""

    id = Id("rtr")
    policy_id = Id("pol")
    category = serializers.CharField(source="policy.category")
    policy_version = serializers.IntegerField()
    scheduled_for = Time()
    cutoff = Time(help_text="What is older went, or would go.")
    dry_run = serializers.BooleanField()
    state = serializers.ChoiceField(RetentionRunModel.State.choices)
    counts = JsonObject()
    failure = Json()
    started_by = serializers.CharField()
    started_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)


# Audit
class AuditFilters(Paging):
    actor = serializers.CharField(required=False, max_length=200, help_text="An actor's id or name.")
    action = serializers.CharField(required=False, max_length=64, help_text="Such as agent.published.")
    object = serializers.CharField(required=False, max_length=64, help_text="An object's type, id or name.")
    after = Time(required=False)
    before = Time(required=False)


class AuditEvent(Output):
    id = Id("aud")
    at = Time()
    actor_kind = serializers.CharField()
    actor_ref = serializers.CharField()
    actor_label = serializers.CharField()
    action = serializers.CharField()
    object_type = serializers.CharField()
    object_ref = serializers.CharField()
    object_label = serializers.CharField()
    payload = JsonObject()
    seq = serializers.IntegerField(allow_null=True, help_text="The event's place in the tenant's chain.")
    hash = serializers.SerializerMethodField(help_text="SHA-256 over the event and the hash of the one before, in hex.")

    def get_hash(self, event) -> str | None:
        return bytes(event.hash).hex() if event.hash is not None else None


class Anchor(Output):
    seq = serializers.IntegerField()
    matches = serializers.BooleanField(help_text="Whether the chain has that hash at that place.")
    at = serializers.CharField()


class AuditVerdict(Output):
    """Whether the audit trail is what was written."""

    verdict = serializers.ChoiceField(list(trail.VERDICTS))
    sentence = serializers.CharField()
    from_seq = serializers.IntegerField(allow_null=True)
    to_seq = serializers.IntegerField(allow_null=True)
    first_bad_seq = serializers.IntegerField(allow_null=True, help_text="Where the finding is, if it has a place.")
    anchor = Anchor(allow_null=True, help_text="The newest signed checkpoint outside the database.")
