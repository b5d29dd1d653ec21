from django.db import migrations

from governance import triggers


class Migration(migrations.Migration):
    """Many rows of one subject in one transaction: each but the first costs less."""

    dependencies = [("governance", "0020_what_holds_keep_out_of_a_plan")]

    operations = [triggers.renewed()]
