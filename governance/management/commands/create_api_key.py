"""`manage.py create_api_key NAME --tenant demo --scope runs:write`: prints the new key, and nothing else, on stdout."""

import sys
from datetime import timedelta

from django.core.management.base import BaseCommand
from django.utils import timezone

from governance.actors import system
from governance.domain import keys
from governance.errors import LetheError
from governance.models import Tenant
from governance.permissions import SCOPES


class Command(BaseCommand):
    help = "Make an API key and print it. It is shown this once."
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("name", help="What the key is for; unique among the tenant's living keys.")
        parser.add_argument("--tenant", default="demo", help="The tenant's short name.")
        parser.add_argument(
            "--scope", action="append", required=True, dest="scopes", metavar="SCOPE",
            help=f"May be given several times. One of: {', '.join(SCOPES)}.",
        )  # fmt: skip
        parser.add_argument("--subject", help="Your application's id of the person that the key speaks for.")
        parser.add_argument("--expires-days", type=int, metavar="N", help="The key ends after so many days.")

    def handle(self, *, name, tenant, scopes, subject, expires_days, **options):
        owner = Tenant.objects.filter(slug=tenant).first()
        if owner is None:
            self._stop(f"There is no tenant {tenant!r}.")
        expires_at = timezone.now() + timedelta(days=expires_days) if expires_days is not None else None
        try:
            _, secret = keys.create_key(
                tenant_id=owner.id, name=name, scopes=scopes, subject=subject, expires_at=expires_at,
                by=system(owner.id, "create_api_key"),
            )  # fmt: skip
        except LetheError as error:
            self._stop(" ".join([error.detail, *(text for texts in error.errors.values() for text in texts)]))
        self.stdout.write(secret)

    def _stop(self, message: str):
        self.stderr.write(message)
        sys.exit(1)
