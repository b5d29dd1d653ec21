from django.db import migrations

from governance import triggers


class Migration(migrations.Migration):
    dependencies = [("governance", "0001_initial")]

    operations = [
        triggers.functions(),
        triggers.guard("governance_subjectidentifier"),
        # A key of a restricted subject may still be used up and revoked; it may not be made or taken over.
        triggers.guard("governance_apikey", columns=("subject_id",)),
    ]
