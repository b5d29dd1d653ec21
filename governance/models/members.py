import unicodedata

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7
from governance.permissions import ROLES, of_roles


def canonical_username(username: str) -> str:
    """How usernames are stored and compared: NFKC, trimmed, lower case."""
    return unicodedata.normalize("NFKC", username).strip().lower()


class MemberManager(BaseUserManager):
    def get_by_natural_key(self, username):
        return self.get(username=canonical_username(username))


class Member(AbstractBaseUser):
    """A person who signs in to the console. What they may do is said per tenant, by their Membership."""

    class Theme(models.TextChoices):
        SYSTEM = "system"
        LIGHT = "light"
        DARK = "dark"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    username = models.CharField(max_length=150, unique=True)
    display_name = models.CharField(max_length=200, blank=True)
    theme = models.CharField(max_length=10, choices=Theme, default=Theme.SYSTEM)
    # Set with a one-time password: the console asks for a new one before anything else.
    must_change_password = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    # May see the component gallery and the installation's own pages; nothing inside a tenant.
    is_staff = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())

    USERNAME_FIELD = "username"
    REQUIRED_FIELDS = []

    objects = MemberManager()

    class Meta:
        ordering = ["username"]

    def __str__(self):
        return self.display_name or self.username


class Membership(models.Model):
    """The roles of one member in one tenant, and what the tenant calls them: other tenants have names of their own."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="memberships")
    member = models.ForeignKey("governance.Member", models.CASCADE, related_name="memberships")
    roles = ArrayField(models.CharField(max_length=32, choices=[(role, role) for role in ROLES]), default=list)
    display_name = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "member"], name="membership_once"),
            models.CheckConstraint(condition=models.Q(roles__len__gt=0), name="membership_has_role"),
        ]

    def __str__(self):
        return f"{self.shown_name} in {self.tenant}"

    @property
    def shown_name(self) -> str:
        return self.display_name or self.member.username

    @property
    def permissions(self) -> frozenset[str]:
        return of_roles(self.roles)
