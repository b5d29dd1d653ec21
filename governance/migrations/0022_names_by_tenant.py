from django.db import migrations, models

# Where somebody belongs to several tenants, the name stays with the first, which gave it.
_CARRY_OVER = """
    UPDATE governance_membership membership SET display_name = member.display_name
    FROM governance_member member
    WHERE member.id = membership.member_id AND member.display_name <> '' AND NOT EXISTS (
        SELECT FROM governance_membership earlier
        WHERE earlier.member_id = membership.member_id AND earlier.id < membership.id
    )
"""


class Migration(migrations.Migration):
    dependencies = [("governance", "0021_guard_of_many_rows")]

    operations = [
        migrations.AddField(
            "membership", "display_name", models.CharField(blank=True, default="", max_length=200), preserve_default=False
        ),
        migrations.RunSQL(_CARRY_OVER, migrations.RunSQL.noop),
    ]
