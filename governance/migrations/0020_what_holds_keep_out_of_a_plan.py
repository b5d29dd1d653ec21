from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("governance", "0019_what_a_purge_asks_of_the_owner")]

    operations = [
        migrations.AddField(model_name="planchunk", name="is_kept", field=models.BooleanField(default=False)),
    ]
