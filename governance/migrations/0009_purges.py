import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import governance.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('governance', '0008_ledger'),
    ]

    operations = [
        migrations.CreateModel(
            name='PurgeJob',
            fields=[
                ('id', models.UUIDField(default=governance.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('table', models.CharField(max_length=63, unique=True)),
                ('state', models.CharField(choices=[('idle', 'Idle'), ('queued', 'Queued')], default='idle', max_length=10)),
                ('requested_at', models.DateTimeField(blank=True, null=True)),
                ('wanted_xid', models.BigIntegerField(default=0)),
                ('done_xid', models.BigIntegerField(default=0)),
                ('lease_no', models.PositiveIntegerField(default=0)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('failure', models.JSONField(blank=True, null=True)),
                ('done_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='RequestPurge',
            fields=[
                ('request', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='purge', serialize=False, to='governance.subjectrequest')),
                ('tables', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), size=None)),
                ('xid', models.BigIntegerField()),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('purged_at', models.DateTimeField(blank=True, null=True)),
                ('purge_lsn', models.CharField(blank=True, max_length=20)),
                ('wal_passed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('wal_passed_at', None)), fields=['requested_at'], name='purge_open')],
            },
        ),
    ]
