"""Providers: keys, addresses, the allow-list of hosts, and the circuit breaker."""

import socket
import threading
import time

import pytest
from django.db import connection

from agents import addresses, queries
from agents.domain import breaker, definitions, providers
from agents.errors import AddressUnknown, EgressRefused, KeyUnavailable, ProviderExists, ProviderInUse, ProviderInvalid
from agents.models import Provider
from governance.actors import system
from governance.errors import MissingPermission, NotFound
from governance.models import AuditEvent
from tests.agents.test_definitions import at_once
from tests.factories import agents

KEY = "sk-abcdefghijklmnop1234"


@pytest.fixture
def create(tenant, builder):
    def made(name="p", kind="openai_compatible", **values):
        if kind == "openai_compatible":
            values.setdefault("base_url", "https://8.8.8.8/v1")
        return providers.create_provider(tenant_id=tenant.id, by=builder, name=name, kind=kind, **values)

    return made


@pytest.fixture
def names(monkeypatch):
    """What host names resolve to; unknown ones are not found. No question leaves the machine."""
    known = {}

    def look_up(host, port, *args, **kwargs):
        if host.replace(".", "").isdigit() or ":" in host:
            return [(0, 0, 0, "", (host, 0))]
        if host not in known:
            raise socket.gaierror("not known")
        return [(0, 0, 0, "", (address, 0)) for address in known[host]]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", look_up)
    return known


def refusal(call, **values) -> dict:
    with pytest.raises(ProviderInvalid) as refused:
        call(**values)
    return refused.value.errors


# --- Creating and changing ------------------------------------------------------------------------------------------


def test_create_provider_keeps_the_key_encrypted(create, tenant):
    provider = create(key=KEY, models=[{"name": "m", "context_window": 1000, "output_price": 0.5, "input_price": None}])

    stored = Provider.objects.get()
    assert KEY.encode() not in bytes(stored.key_enc)
    assert (stored.key_hint, stored.model_list) == ("1234", [{"name": "m", "context_window": 1000, "output_price": "0.5"}])
    assert providers.secret_of(stored) == KEY
    assert provider == stored
    events = AuditEvent.objects.filter(tenant_id=tenant.id, object_type="provider")
    assert [(event.action, event.payload) for event in events] == [("provider.created", {"kind": "openai_compatible"})]


def test_key_of_another_provider_does_not_decrypt(create):
    one, other = create("one", key=KEY), create("other", key="sk-otherotherother")
    other.key_enc = one.key_enc

    with pytest.raises(Exception, match="another key"):
        providers.secret_of(other)


def test_short_key_shows_no_part_of_itself(create):
    assert create(key="tiny").key_hint == ""


def test_key_from_the_environment(create, monkeypatch):
    provider = create(key_env="MY_API_KEY")

    with pytest.raises(KeyUnavailable, match="MY_API_KEY"):
        providers.secret_of(provider)
    monkeypatch.setenv("MY_API_KEY", f" {KEY}\n")
    assert providers.secret_of(provider) == KEY
    assert providers.secret_of(create("keyless")) is None


@pytest.mark.parametrize("name", ["LETHE_SECRET_KEY", "DATABASE_URL", "LETHE_ENCRYPTION_KEY", "PATH", "my_api_key", "A;B_API_KEY"])
def test_no_provider_reads_the_servers_own_secrets(create, name):
    assert list(refusal(create, key_env=name)) == ["key_env"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "a.b"}, "name"),
        ({"kind": "bedrock"}, "kind"),
        ({"base_url": ""}, "base_url"),
        ({"base_url": "ftp://8.8.8.8"}, "base_url"),
        ({"base_url": "https://"}, "base_url"),
        ({"base_url": "https://8.8.8.8:99999"}, "base_url"),
        ({"base_url": "https://user:pass@8.8.8.8"}, "base_url"),
        ({"base_url": "https://8.8.8.8/?a=1"}, "base_url"),
        ({"base_url": "https://8.8.8.8/#a"}, "base_url"),
        ({"base_url": "https://8.8.8.8/a b"}, "base_url"),
        ({"base_url": "https://[::1"}, "base_url"),
        ({"base_url": "https://8.8.8.8/" + "a" * 500}, "base_url"),
        ({"kind": "demo", "base_url": "https://8.8.8.8"}, "base_url"),
        ({"key": "with space"}, "key"),
        ({"key": "schlüssel"}, "key"),
        ({"key": "x" * 4001}, "key"),
        ({"key": KEY, "key_env": "MY_API_KEY"}, "key_env"),
        ({"api": "batch"}, "api"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": True}, "max_concurrency"),
        ({"max_concurrency": "5"}, "max_concurrency"),
        ({"models": "gpt"}, "models"),
        ({"models": ["gpt"]}, "models"),
        ({"models": [{"name": ""}]}, "models.0.name"),
        ({"models": [{"context_window": 5}]}, "models.0.name"),
        ({"models": [{"name": "m"}, {"name": "m"}]}, "models.1.name"),
        ({"models": [{"name": "m", "context_window": -1}]}, "models.0.context_window"),
        ({"models": [{"name": "m", "context_window": "many"}]}, "models.0.context_window"),
        ({"models": [{"name": "m", "input_price": "cheap"}]}, "models.0.input_price"),
        ({"models": [{"name": "m", "input_price": "-1"}]}, "models.0.input_price"),
        ({"models": [{"name": "m", "input_price": "NaN"}]}, "models.0.input_price"),
        ({"models": [{"name": "m", "color": "red"}]}, "models.0.color"),
        ({"models": [{"name": "m", "context_window": 10, "max_output_tokens": 10}]}, "models.0.max_output_tokens"),
    ],
)
def test_create_provider_says_what_is_wrong_by_field(create, values, field):
    errors = refusal(create, **values)

    assert list(errors) == [field]
    assert all(sentence.endswith(".") for sentences in errors.values() for sentence in sentences)
    assert not Provider.objects.exists()


def test_provider_name_is_unique_in_the_tenant_only(create, stranger):
    agents.provider(stranger, "p")
    create()

    with pytest.raises(ProviderExists):
        create()


def test_update_provider_changes_what_is_given(create, builder, tenant):
    provider = create(key=KEY, models=[{"name": "m"}], max_concurrency=3)

    changed = providers.update_provider(provider=provider, by=builder, api="chat", is_disabled=True)

    stored = Provider.objects.get()
    assert (stored.api, stored.is_disabled, stored.max_concurrency, stored.model_list) == ("chat", True, 3, [{"name": "m"}])
    assert providers.secret_of(changed) == KEY
    assert stored.updated_at > stored.created_at
    event = AuditEvent.objects.get(action="provider.updated")
    assert event.payload == {"fields": ["api", "is_disabled"]}


def test_update_provider_replaces_and_removes_the_key(create, builder):
    provider = create(key=KEY)

    provider = providers.update_provider(provider=provider, by=builder, key="sk-new-new-new-new")
    assert providers.secret_of(provider) == "sk-new-new-new-new"
    provider = providers.update_provider(provider=provider, by=builder, key="")
    assert (providers.secret_of(provider), provider.key_hint) == (None, "")
    assert AuditEvent.objects.filter(action="provider.key_changed").count() == 2
    assert not AuditEvent.objects.filter(payload__icontains="sk-").exists()


def test_name_and_kind_of_a_provider_stay(create, builder):
    provider = create()

    assert set(refusal(providers.update_provider, provider=provider, by=builder, name="q", kind="demo")) == {"name", "kind"}


def test_stored_key_does_not_follow_to_another_host(create, builder):
    provider = create(key=KEY)

    errors = refusal(providers.update_provider, provider=provider, by=builder, base_url="https://1.1.1.1/v1")
    assert list(errors) == ["key"]
    assert Provider.objects.get().base_url == "https://8.8.8.8/v1"

    providers.update_provider(provider=provider, by=builder, base_url="https://8.8.8.8/v2")
    moved = providers.update_provider(provider=provider, by=builder, base_url="https://1.1.1.1/v1", key="sk-again-again-again")
    assert providers.secret_of(moved) == "sk-again-again-again"


def test_another_address_forgets_what_was_learned(create, builder):
    provider = create()
    Provider.objects.update(failures=5, open_until="2100-01-01T00:00Z", last_test={"ok": False})

    changed = providers.update_provider(provider=provider, by=builder, base_url="https://1.1.1.1/v1")

    assert (changed.failures, changed.open_until, changed.last_test) == (0, None, None)


def test_delete_provider_refuses_while_a_published_version_uses_it(tenant, builder):
    demo = agents.provider(tenant)
    user = agents.published(tenant, "user")
    backup = agents.provider(tenant, "backup")
    agents.published(tenant, "falls", model={"provider": "demo", "model": "demo-1", "fallbacks": [{"provider": "backup", "model": "demo-1"}]})

    with pytest.raises(ProviderInUse) as refused:
        providers.delete_provider(provider=backup, by=builder)
    assert refused.value.extra["agents"] == ["falls"]
    with pytest.raises(ProviderInUse) as refused:
        providers.delete_provider(provider=demo, by=builder)
    assert refused.value.extra["agents"] == ["falls", "user"]

    document = agents.document("user", model={"provider": "backup", "model": "demo-1"})
    definitions.save_draft(agent=user, document=document, expected=1, by=builder)
    definitions.publish(agent=user, note="", by=builder)
    definitions.delete_agent(agent=queries.agent_named(tenant_id=tenant.id, name="falls"), by=builder)
    providers.delete_provider(provider=demo, by=builder)
    assert [provider.name for provider in queries.providers_of(tenant.id)] == ["backup"]


def test_record_test_keeps_the_result(create, builder):
    provider = create()

    providers.record_test(provider=provider, result={"ok": False, "code": "auth", "message": "A sentence."}, by=builder)

    assert Provider.objects.get().last_test == {"ok": False, "code": "auth", "message": "A sentence."}
    assert AuditEvent.objects.get(action="provider.tested").payload == {"ok": False, "code": "auth"}


VERBS = {
    "update": lambda provider, by: providers.update_provider(provider=provider, by=by, api="chat"),
    "delete": lambda provider, by: providers.delete_provider(provider=provider, by=by),
    "test": lambda provider, by: providers.record_test(provider=provider, result={}, by=by),
    "egress": lambda provider, by: providers.set_egress(tenant_id=provider.tenant_id, hosts=[], by=by),
    "create": lambda provider, by: providers.create_provider(tenant_id=provider.tenant_id, by=by, name="x", kind="demo"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_providers_are_the_tenants_and_the_builders(create, stranger, viewer, verb):
    provider = create()
    before = list(Provider.objects.values())

    with pytest.raises(MissingPermission):
        VERBS[verb](provider, viewer)
    with pytest.raises(NotFound):
        VERBS[verb](provider, system(stranger.id))
    assert list(Provider.objects.values()) == before


# --- Addresses ------------------------------------------------------------------------------------------------------

PRIVATE = [
    "http://127.0.0.1:11434/v1",
    "http://10.0.0.5",
    "http://172.16.1.1",
    "http://192.168.1.10",
    "http://169.254.169.254/latest/meta-data",
    "http://100.64.0.1",
    "http://0.0.0.0",
    "http://[::1]:8000",
    "http://[fe80::1]",
    "http://[fd00::1]",
    "http://[::ffff:127.0.0.1]",
    "http://[::ffff:7f00:1]",
    "http://[2002:7f00:1::]",
    "http://[64:ff9b::7f00:1]",
    "http://224.0.0.1",
]


@pytest.mark.parametrize("url", PRIVATE)
def test_private_addresses_are_refused(create, url):
    with pytest.raises(EgressRefused, match="LETHE_ALLOW_PRIVATE_PROVIDERS"):
        create(base_url=url)


@pytest.mark.parametrize("url", ["http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://localhost:8000/"])
def test_other_spellings_of_private_addresses_are_refused(create, url):
    """The resolver reads them as 127.0.0.1, so what it answers is what counts."""
    with pytest.raises(EgressRefused):
        create(base_url=url)


def test_operator_may_allow_private_addresses(create, settings):
    settings.LETHE = settings.LETHE | {"allow_private_providers": True}

    provider = create(base_url="http://127.0.0.1:11434/v1/")

    assert provider.base_url == "http://127.0.0.1:11434/v1"
    providers.check_egress(provider)


LINK_LOCAL = [
    "http://169.254.169.254/latest/meta-data", "http://[fe80::1]", "http://[::ffff:169.254.169.254]", "http://[64:ff9b::a9fe:a9fe]",
    "http://[fd00:ec2::254]",
]  # fmt: skip


@pytest.mark.parametrize("url", LINK_LOCAL)
def test_link_local_addresses_stay_refused(create, settings, url):
    """A cloud hands the machine's credentials out there."""
    settings.LETHE = settings.LETHE | {"allow_private_providers": True}

    with pytest.raises(EgressRefused, match="link-local"):
        create(base_url=url)


def test_name_that_means_a_private_address_is_refused(create, names):
    names["models.example.com"] = ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(EgressRefused):
        create(base_url="https://models.example.com/v1")


def test_name_is_asked_again_before_it_is_called(create, names):
    names["models.example.com"] = ["93.184.216.34"]
    provider = create(base_url="https://models.example.com/v1")
    providers.check_egress(provider)

    names["models.example.com"] = ["127.0.0.1"]
    with pytest.raises(EgressRefused):
        providers.check_egress(provider)


def test_unknown_host_can_be_saved_but_not_called(create, names):
    provider = create(base_url="https://not-yet.example.com/v1")

    with pytest.raises(AddressUnknown, match="not-yet.example.com"):
        providers.check_egress(provider)


def test_slow_resolver_does_not_hold_anybody_up(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(addresses, "RESOLVE_SECONDS", 0.05)
    monkeypatch.setattr(addresses.socket, "getaddrinfo", lambda *args, **kwargs: release.wait(5) and [])

    started = time.monotonic()
    with pytest.raises(AddressUnknown):
        addresses.resolve("slow.example.com")
    release.set()

    assert time.monotonic() - started < 2


def test_host_that_cannot_be_encoded_is_unknown():
    with pytest.raises(AddressUnknown):
        addresses.resolve("a" * 300 + ".example")


# --- Allowed hosts --------------------------------------------------------------------------------------------------


def test_egress_rule_limits_every_kind(create, tenant, builder, names):
    names["models.example.com"] = ["93.184.216.34"]
    before = create("before", kind="anthropic")
    assert providers.set_egress(tenant_id=tenant.id, hosts=[" API.openai.com. ", "*.example.com", ""], by=builder) == [
        "*.example.com",
        "api.openai.com",
    ]

    create("openai", kind="openai")
    create("inside", base_url="https://models.example.com/v1")
    create("demo", kind="demo")
    for refused in ({"kind": "google"}, {"base_url": "https://8.8.8.8/v1"}, {"base_url": "https://notexample.com"}):
        with pytest.raises(EgressRefused):
            create("refused", **refused)
    with pytest.raises(EgressRefused, match="api.anthropic.com"):
        providers.check_egress(before)


def test_egress_rule_of_another_tenant_says_nothing_here(create, stranger):
    providers.set_egress(tenant_id=stranger.id, hosts=["api.openai.com"], by=system(stranger.id))

    assert create(kind="google").kind == "google"


def test_egress_needs_hosts(tenant, builder):
    with pytest.raises(ProviderInvalid) as refused:
        providers.set_egress(tenant_id=tenant.id, hosts=["https://example.com", "ok.example.com"], by=builder)

    assert refused.value.errors == {"hosts": ["https://example.com is no host."]}
    assert queries.egress_hosts(tenant.id) == []


# --- Limits ---------------------------------------------------------------------------------------------------------


def test_model_limits_prefer_the_operators_list(create):
    provider = create("openai", kind="openai", models=[{"name": "gpt-4.1-mini", "context_window": 500, "max_output_tokens": 50}])

    assert queries.model_limits(provider, "gpt-4.1-mini") == {"context_window": 500, "max_output_tokens": 50}
    assert queries.model_limits(provider, "gpt-4.1")["context_window"] > 100_000
    assert queries.model_limits(provider, "no-such-model") == {"context_window": None, "max_output_tokens": None}
    assert queries.model_limits(create(), "gpt-4.1") == {"context_window": None, "max_output_tokens": None}


# --- Circuit breaker ------------------------------------------------------------------------------------------------


def pause_ends(provider):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agents_provider SET open_until = now() - interval '1 second' WHERE id = %s", [provider.pk])


def test_breaker_opens_after_five_failures_in_a_row(demo):
    for _ in range(breaker.FAILURES - 1):
        breaker.record_failure(demo.pk)
    assert not breaker.is_open(demo)
    breaker.record_success(demo.pk)
    for _ in range(breaker.FAILURES - 1):
        breaker.record_failure(demo.pk)
    assert not breaker.is_open(demo)

    breaker.record_failure(demo.pk)

    assert breaker.is_open(demo)


def test_breaker_lets_one_probe_through_after_the_pause(demo):
    for _ in range(breaker.FAILURES):
        breaker.record_failure(demo.pk)
    pause_ends(demo)

    assert [breaker.is_open(demo) for _ in range(3)] == [False, True, True]

    breaker.record_failure(demo.pk)
    assert breaker.is_open(demo)
    pause_ends(demo)
    assert not breaker.is_open(demo)
    breaker.record_success(demo.pk)
    assert [breaker.is_open(demo) for _ in range(3)] == [False] * 3
    demo.refresh_from_db()
    assert (demo.failures, demo.open_until) == (0, None)


def test_breaker_of_a_provider_that_is_gone(demo):
    Provider.objects.all().delete()

    breaker.record_failure(demo.pk)
    assert not breaker.is_open(demo)


@pytest.mark.django_db(transaction=True)
def test_breaker_is_shared_and_loses_no_count(demo):
    at_once(*[lambda: breaker.record_failure(demo.pk)] * 8)
    demo.refresh_from_db()
    assert demo.failures == 8
    assert at_once(*[lambda: breaker.is_open(demo)] * 4) == [True] * 4

    pause_ends(demo)
    answers = at_once(*[lambda: breaker.is_open(demo)] * 8)

    assert sorted(answers) == [False] + [True] * 7


def test_healthy_provider_is_not_written(demo):
    before = Provider.objects.values_list("updated_at", "failures").get()
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin FROM agents_provider")
        row = cursor.fetchone()
        breaker.record_success(demo.pk)
        cursor.execute("SELECT xmin FROM agents_provider")
        assert cursor.fetchone() == row
    assert Provider.objects.values_list("updated_at", "failures").get() == before
