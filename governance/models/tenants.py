from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class Tenant(models.Model):
    """The isolated owner of agents, sessions and data. Every other row belongs to one."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    # Days and months of quotas, clocks and retention are counted in this zone.
    timezone = models.CharField(max_length=64, default="UTC")
    settings = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]

    def __str__(self):
        return self.name
