import django.db.models.functions.datetime
import governance.ids
from django.db import migrations, models

from governance import chain


class Migration(migrations.Migration):

    dependencies = [
        ('governance', '0003_plan_fingerprints_and_removed_policies'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditBoundary',
            fields=[
                ('id', models.UUIDField(default=governance.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('through_seq', models.BigIntegerField()),
                ('hash', models.BinaryField(max_length=32)),
                ('rows', models.BigIntegerField()),
                ('export_sha256', models.CharField(max_length=64)),
                ('signature', models.JSONField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='AuditHead',
            fields=[
                ('tenant_id', models.UUIDField(primary_key=True, serialize=False)),
                ('seq', models.BigIntegerField(default=0)),
                ('hash', models.BinaryField(max_length=32)),
                ('anchored_seq', models.BigIntegerField(default=0)),
                ('anchored_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.AddField(
            model_name='auditevent',
            name='hash',
            field=models.BinaryField(max_length=32, null=True),
        ),
        migrations.AddField(
            model_name='auditevent',
            name='prev_hash',
            field=models.BinaryField(max_length=32, null=True),
        ),
        migrations.AddField(
            model_name='auditevent',
            name='seq',
            field=models.BigIntegerField(editable=False, null=True),
        ),
        chain.chain_existing(),
        migrations.AddConstraint(
            model_name='auditevent',
            constraint=models.UniqueConstraint(fields=('tenant_id', 'seq'), name='audit_seq_once'),
        ),
        migrations.AddConstraint(
            model_name='auditevent',
            constraint=models.UniqueConstraint(fields=('tenant_id', 'prev_hash'), name='audit_no_fork'),
        ),
        migrations.AddConstraint(
            model_name='auditevent',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('hash', None), ('prev_hash', None), ('seq', None)), models.Q(('hash__isnull', False), ('prev_hash__isnull', False), ('seq__isnull', False)), _connector='OR'), name='audit_place_is_whole'),
        ),
        migrations.AddConstraint(
            model_name='auditboundary',
            constraint=models.UniqueConstraint(fields=('tenant_id', 'through_seq'), name='audit_boundary_once'),
        ),
        chain.install(),
    ]
