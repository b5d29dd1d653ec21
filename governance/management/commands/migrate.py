"""`manage.py migrate`: Django's own, by the role that owns the tables."""

from django.core.management import CommandError
from django.core.management.commands import migrate

from governance import database_roles


class Command(migrate.Command):
    def execute(self, *args, **options):
        # Checks included: they ask the database, too, and the other role may not be there yet.
        with database_roles.as_owner(options["database"]):
            if (missing := database_roles.missing(options["database"])) is not None:
                raise CommandError(f"The database has no role {missing}, which DATABASE_URL names. Make it first; the README says how.")
            return super().execute(*args, **options)

    def handle(self, *args, **options):
        super().handle(*args, **options)
        if not options["plan"]:
            database_roles.grant(options["database"])
