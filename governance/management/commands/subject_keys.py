"""`manage.py subject_keys on|off|status --tenant demo`: whether a tenant's people have keys of their own."""

from django.core.management import BaseCommand, CommandError

from governance.actors import system
from governance.domain import shredding
from governance.errors import LetheError
from governance.models import Tenant


class Command(BaseCommand):
    help = (
        "Have what people say, their files and attachments encrypted under a key for each person, which an erasure destroys. Run"
        " rotate_keys afterwards: it brings in line what is there already, after `off` too."
    )

    def add_arguments(self, parser):
        parser.add_argument("what", choices=["on", "off", "status"])
        parser.add_argument("--tenant", default="demo", help="The tenant's short name.")

    def handle(self, *, what, tenant, **options):
        owner = Tenant.objects.filter(slug=tenant).first()
        if owner is None:
            raise CommandError(f"There is no tenant {tenant!r}.")
        if what != "status":
            try:
                shredding.switch(tenant=owner, on=what == "on", by=system(owner.pk, "subject_keys"))
            except LetheError as error:
                raise CommandError(error.detail) from None
        kept = owner.settings.get(shredding.SETTING, {})
        state = "on" if kept.get("is_on") else "off"
        since = f"; everything is sealed since {kept['complete_at']}" if kept.get("complete_at") else ""
        left = "" if since or state == "off" and what == "status" else ". Run rotate_keys to bring in line what is there already"
        self.stdout.write(f"Keys of subjects are {state} for {owner.slug}{since}{left}.")
