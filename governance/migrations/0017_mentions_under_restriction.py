from django.db import migrations

from governance import triggers


class Migration(migrations.Migration):
    dependencies = [("governance", "0016_unattributed_waivers")]

    operations = [triggers.mention_guard()]
