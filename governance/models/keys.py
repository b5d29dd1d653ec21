from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7
from governance.permissions import SCOPES


class ApiKey(models.Model):
    """A credential of an application. Only its SHA-256 is kept; the key itself is shown once.

    The key is 256 random bits, so a fast hash is enough: there is nothing to guess.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    # The first characters, so that a person can tell keys apart.
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=32, choices=[(scope, scope) for scope in SCOPES]))
    # The subject that this key speaks for; none for keys that assert one, or that act for nobody.
    subject = models.ForeignKey("governance.Subject", models.DO_NOTHING, null=True, blank=True, related_name="+")
    created_by = models.CharField(max_length=200)
    # The member who made it, by id: whoever acts through a key of their own is that person. Empty for Lethe itself.
    owner = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"], condition=models.Q(revoked_at=None), name="api_key_name_once"
            )
        ]

    def __str__(self):
        return self.name
