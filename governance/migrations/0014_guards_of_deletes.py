from django.db import migrations

from governance import triggers


class Migration(migrations.Migration):
    dependencies = [("governance", "0013_retention_lengths_and_approvals")]

    operations = triggers.again("governance", "0002_subject_guard", "0005_archives_in_volumes", "0007_holds", "0010_lineage")
