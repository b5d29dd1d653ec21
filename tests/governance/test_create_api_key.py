from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from governance.domain import keys, subjects
from governance.models import ApiKey
from tests.factories import governance as make


def create(capsys, *args):
    call_command("create_api_key", *args)
    return capsys.readouterr()


def test_prints_the_key_and_nothing_else(capsys, tenant):
    out, err = create(
        capsys, "app", "--tenant", "acme", "--scope", "runs:write", "--scope", "runs:read", "--expires-days", "3",
    )  # fmt: skip

    actor = keys.authenticate(secret=out.removesuffix("\n"))
    stored = ApiKey.objects.get()
    assert err == ""
    assert (actor.tenant_id, actor.label, stored.scopes) == (tenant.id, "app", ["runs:write", "runs:read"])
    assert timedelta(days=2, hours=23) < stored.expires_at - timezone.now() <= timedelta(days=3)


def test_takes_the_demo_tenant_and_a_subject(capsys, db):
    demo = make.tenant("demo")

    out, _ = create(capsys, "app", "--scope", "runs:write", "--subject", "anna")

    assert keys.authenticate(secret=out.strip()).subject_id == subjects.find(tenant_id=demo.id, value="anna").id


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("app", "--tenant", "none", "--scope", "runs:write"), "no tenant 'none'"),
        (("app", "--tenant", "acme", "--scope", "nope"), "Unknown scope: nope"),
        (("", "--tenant", "acme", "--scope", "runs:write"), "name of 1 to 100"),
        (("app", "--tenant", "acme", "--scope", "runs:write", "--expires-days", "0"), "has passed"),
    ],
)
def test_says_on_stderr_what_is_wrong_and_exits_with_1(capsys, tenant, args, message):
    with pytest.raises(SystemExit) as caught:
        create(capsys, *args)
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (1, "")
    assert message in err
    assert not ApiKey.objects.exists()


def test_scope_is_required(tenant):
    with pytest.raises(CommandError, match="scope"):
        call_command("create_api_key", "app")
