"""`manage.py audit_trail verify|check|prune`: the trail as evidence, without the console."""

from pathlib import Path

from django.core.management import BaseCommand, CommandError

from governance.actors import system
from governance.chain import GENESIS, read
from governance.domain import anchors, trail
from governance.errors import LetheError
from governance.models import Tenant


class Command(BaseCommand):
    help = "Verify a tenant's audit trail, check an exported file, or prune the beginning of a trail. Ends with 1 when the check does not hold."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True)
        verify = verbs.add_parser("verify", help="recompute the chain and compare it with the signed checkpoints")
        verify.add_argument("--tenant", help="its short name; all tenants by default")
        check = verbs.add_parser("check", help="check an exported file; needs no database")
        check.add_argument("file", type=Path)
        prune = verbs.add_parser("prune", help="write the beginning of a trail to a file, check it, and remove it")
        prune.add_argument("--tenant", required=True)
        prune.add_argument("--through", type=int, required=True, help="the number of the last event that goes")
        prune.add_argument("--to", type=Path, required=True, help="a new file")

    def handle(self, *, verb, **options):
        try:
            getattr(self, f"_{verb}")(options)
        except LetheError as error:
            raise CommandError(error.detail) from None

    def _verify(self, options):
        tenants = [self._tenant(options["tenant"])] if options["tenant"] else list(Tenant.objects.all())
        verdicts = {tenant.slug: trail.verify(tenant_id=tenant.id) for tenant in tenants}
        for slug, verdict in verdicts.items():
            self.stdout.write(f"{slug}: {trail.as_json(verdict)}")
        if bad := [slug for slug, verdict in verdicts.items() if not verdict.is_valid]:
            raise CommandError(f"Not valid: {', '.join(bad)}.")

    def _check(self, options):
        path = options["file"]
        try:
            with path.open("rb") as file:
                first = next(file, None)
                if first is None:
                    raise CommandError(f"{path} holds no events.")
                event = read(first)
                file.seek(0)
                # A range from the middle is held against its own first event's predecessor.
                rows, seq, last = trail.check_lines(file, start=event["seq"] - 1, before=bytes.fromhex(event["prev_hash"]))
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(f"{path} is not an export of an audit trail ({type(error).__name__}).") from None
        begins = "at the beginning" if event["prev_hash"] == GENESIS.hex() else f"at event {event['seq']}"
        self.stdout.write(f"{rows} events form one chain that starts {begins} and ends at event {seq} with {last.hex()}.")

    def _prune(self, options):
        tenant = self._tenant(options["tenant"])
        anchors.checkpoint(tenant_id=tenant.id)
        boundary = trail.prune(
            tenant_id=tenant.id, through_seq=options["through"], to=options["to"], by=system(tenant.id, "manage.py")
        )
        self.stdout.write(f"{boundary.rows} events are in {options['to']} (SHA-256 {boundary.export_sha256}) and no longer in the database.")

    def _tenant(self, slug):
        tenant = Tenant.objects.filter(slug=slug).first()
        if tenant is None:
            raise CommandError(f"There is no tenant {slug}.")
        return tenant
