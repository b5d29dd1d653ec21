"""`manage.py art30_record --tenant demo [--json]`: the record of processing activities (GDPR, article 30), on stdout."""

import json
import sys

from django.core.management.base import BaseCommand

from governance.domain import processing
from governance.models import Tenant


class Command(BaseCommand):
    help = "Write the record of processing activities of a tenant, drawn from the register of categories."

    def add_arguments(self, parser):
        parser.add_argument("--tenant", default="demo", help="The tenant's short name.")
        parser.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of Markdown.")

    def handle(self, *, tenant, as_json, **options):
        owner = Tenant.objects.filter(slug=tenant).first()
        if owner is None:
            self.stderr.write(f"There is no tenant {tenant!r}.")
            sys.exit(1)
        record = processing.record(tenant=owner)
        self.stdout.write(json.dumps(record, indent=2, ensure_ascii=False) if as_json else processing.markdown(record))
