import secrets

from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7

_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"


def new_display_ref() -> str:
    """A random reference such as S-7Q4K-2M9D: short enough to type, and it says nothing about the person."""
    letters = [secrets.choice(_ALPHABET) for _ in range(8)]
    return f"S-{''.join(letters[:4])}-{''.join(letters[4:])}"


class Subject(models.Model):
    """One incarnation of a person in one tenant. After an erasure the person gets a new one; the id never returns."""

    class State(models.TextChoices):
        ACTIVE = "active"
        RESTRICTED = "restricted"
        ERASING = "erasing"
        ERASED = "erased"
        MERGED = "merged"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="subjects")
    # Raised by every fence, lift, merge and split; runs carry the epoch they started under.
    epoch = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=12, choices=State, default=State.ACTIVE)
    # The subject that has everything of a merged one.
    merged_into = models.UUIDField(null=True, blank=True)
    display_ref = models.CharField(max_length=16, default=new_display_ref)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "display_ref"], name="subject_ref_once")]

    def __str__(self):
        return self.display_ref


class SubjectIdentifier(models.Model):
    """Something that names a subject: the application's own id, an email, a phone number.

    Found by a keyed hash of its normalised value, never by similarity; readable only through its ciphertext.
    """

    class Kind(models.TextChoices):
        EXTERNAL = "external", "Application's id"
        EMAIL = "email"
        PHONE = "phone"
        MEMBER = "member", "Console member"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+")
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, related_name="identifiers")
    kind = models.CharField(max_length=20, choices=Kind)
    value_hmac = models.BinaryField(max_length=32)
    value_enc = models.BinaryField()
    norm_version = models.PositiveSmallIntegerField(default=1)
    verified_at = models.DateTimeField(null=True, blank=True)
    source = models.CharField(max_length=40, default="api")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "kind", "value_hmac"], name="identifier_names_one_subject")
        ]
        indexes = [models.Index(fields=["tenant", "subject"], name="identifier_of_subject")]

    def __str__(self):
        return f"{self.kind} of {self.subject_id}"


class Fence(models.Model):
    """The rule that refuses writes for a subject. It names an incarnation, so a person may come back."""

    class Mode(models.TextChoices):
        RESTRICT = "restrict"
        ERASE = "erase"
        SUPPRESS = "suppress"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+")
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, related_name="fences")
    mode = models.CharField(max_length=10, choices=Mode)
    request_id = models.UUIDField(null=True, blank=True)
    since = models.DateTimeField(db_default=Now())
    lifted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["subject"], condition=models.Q(lifted_at=None), name="fence_one_open_per_subject"
            )
        ]

    def __str__(self):
        return f"{self.mode} {self.subject_id}"


class UnattributedWaiver(models.Model):
    """Somebody looked at rows that name nobody and decided that they stay so: one row, or a category with an empty row_id."""

    class Reason(models.TextChoices):
        NOT_PERSONAL = "not_personal", "They are about nobody: a system, a test, something that all share"
        CANNOT_TELL = "cannot_tell", "Whose they are cannot be found out any more"
        OTHER = "other", "Another reason, on file elsewhere"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="+")
    category = models.CharField(max_length=40)
    row_id = models.CharField(max_length=120, blank=True)
    reason = models.CharField(max_length=12, choices=Reason)
    waived_by = models.CharField(max_length=64)
    waived_by_label = models.CharField(max_length=200)
    waived_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "category", "row_id"], name="unattributed_waived_once")]

    def __str__(self):
        return f"{self.category} {self.row_id}".strip()


class SubjectLink(models.Model):
    """Another person in a row: who else it is by or about. The row's own subject has no link.

    `row_id` is the row's key as previews show it: its ordering columns joined by colons.
    """

    class Role(models.TextChoices):
        AUTHOR = "author", "Wrote it"
        RECIPIENT = "recipient", "Received it"
        MENTIONED = "mentioned", "Is named in it"
        OPERATOR = "operator", "Handled it"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    subject_id = models.UUIDField()
    category = models.CharField(max_length=40)
    row_id = models.CharField(max_length=120)
    role = models.CharField(max_length=10, choices=Role)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "category", "row_id", "subject_id", "role"], name="subject_link_once"
            )
        ]
        indexes = [models.Index(fields=["tenant_id", "subject_id"], name="subject_link_of_subject")]

    def __str__(self):
        return f"{self.role} of {self.category} {self.row_id}"
