import django.db.models.functions.datetime
import governance.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('governance', '0007_holds'),
    ]

    operations = [
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.UUIDField(default=governance.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('kind', models.CharField(choices=[('erase_started', 'Erase Started'), ('erase_finished', 'Erase Finished'), ('hold_placed', 'Hold Placed'), ('hold_released', 'Hold Released'), ('break_glass', 'Break Glass')], max_length=20)),
                ('ref', models.UUIDField()),
                ('subject_id', models.UUIDField(blank=True, null=True)),
                ('body', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('number', models.BigIntegerField(blank=True, null=True)),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('number', None)), fields=['id'], name='ledger_waiting')],
                'constraints': [models.UniqueConstraint(fields=('kind', 'ref'), name='ledger_says_it_once'), models.CheckConstraint(condition=models.Q(models.Q(('acknowledged_at', None), ('number', None)), models.Q(('acknowledged_at__isnull', False), ('number__isnull', False)), _connector='OR'), name='ledger_acknowledged_with_number')],
            },
        ),
        migrations.CreateModel(
            name='LedgerState',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('high_water', models.BigIntegerField(default=0)),
                ('tail', models.CharField(blank=True, max_length=64)),
                ('is_replaying', models.BooleanField(default=False)),
                ('waived', models.JSONField(blank=True, null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='ledger_state_once')],
            },
        ),
        migrations.CreateModel(
            name='SuppressedIdentifier',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('kind', models.CharField(max_length=20)),
                ('value_hmac', models.BinaryField(max_length=32)),
                ('norm_version', models.PositiveSmallIntegerField(default=1)),
                ('erased_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant_id', 'kind', 'value_hmac'), name='suppressed_once')],
            },
        ),
    ]
