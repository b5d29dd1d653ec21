"""The utility model: set once for a tenant, checked against its providers, and not left behind by one of them."""

import pytest

from agents import queries
from agents.compile import compile_definition
from agents.definition import ModelRef
from agents.domain import providers, utility
from agents.errors import ProviderInUse
from agents.models import Provider
from governance.actors import system
from governance.domain import keeping, rules
from governance.errors import Invalid, MissingPermission, NotFound
from governance.models import AuditEvent, Tenant
from tests.agents.test_definitions import at_once
from tests.factories import agents

SUMMARISES = {"compaction": {"strategy": "summarization", "trigger_turns": 9}}


@pytest.fixture
def small(tenant):
    return agents.provider(tenant, "small")


@pytest.fixture
def choose(tenant, builder):
    def chosen(provider="small", model="tiny", by=builder):
        return utility.set_utility_model(tenant_id=tenant.id, provider=provider, model=model, by=by)

    return chosen


def recorded():
    return [event.payload for event in AuditEvent.objects.filter(action="tenant.settings_changed").order_by("pk")]


def test_utility_model_is_kept_for_the_tenant_alone(choose, small, tenant, stranger):
    assert queries.utility_model(tenant.id) is None

    choose()

    assert queries.utility_model(tenant.id) == ModelRef(provider="small", model="tiny")
    assert queries.utility_model_of(Tenant.objects.get(pk=tenant.pk)) == ModelRef(provider="small", model="tiny")
    assert queries.utility_model(stranger.id) is None


def test_utility_model_is_replaced_and_cleared(choose, small, tenant, builder):
    choose()
    choose(model=" other\n")
    replaced = queries.utility_model(tenant.id)
    utility.clear_utility_model(tenant_id=tenant.id, by=builder)

    assert replaced == ModelRef(provider="small", model="other")
    assert queries.utility_model(tenant.id) is None
    assert Tenant.objects.get(pk=tenant.pk).settings == {}


def test_each_change_of_the_utility_model_is_recorded_once_and_without_the_models_name(choose, small, tenant, builder):
    name = "a model, named (at length) @ somewhere"
    utility.clear_utility_model(tenant_id=tenant.id, by=builder)
    choose(model=name)
    choose(model=name)
    utility.clear_utility_model(tenant_id=tenant.id, by=builder)

    assert recorded() == [
        {"fields": ["utility_model"], "utility_provider": "small"},
        {"fields": ["utility_model"], "utility_provider": None},
    ]
    event = AuditEvent.objects.filter(action="tenant.settings_changed").first()
    assert (event.object_type, event.object_ref, event.actor_label) == ("tenant", tenant.pk.hex, builder.label)


@pytest.mark.parametrize(
    ("given", "sentences"),
    [
        ({"provider": ""}, {"provider": ["Choose a provider."]}),
        ({"provider": "nobody"}, {"provider": ["There is no provider named nobody. Add it first, or choose another."]}),
        ({"provider": "theirs"}, {"provider": ["There is no provider named theirs. Add it first, or choose another."]}),
        ({"provider": "off"}, {"provider": ["The provider off is switched off. Switch it on first, or choose another."]}),
        ({"model": ""}, {"model": ["Enter the model's name exactly as the provider spells it."]}),
        ({"model": " \x00\n"}, {"model": ["Enter the model's name exactly as the provider spells it."]}),
        ({"model": "one\nother"}, {"model": ["Enter the model's name exactly as the provider spells it."]}),
        ({"model": "x" * 201}, {"model": ["A model's name has at most 200 characters."]}),
        ({"provider": "", "model": ""}, {"provider": ["Choose a provider."], "model": ["Enter the model's name exactly as the provider spells it."]}),
    ],
)
def test_set_utility_model_says_what_is_wrong_by_field(choose, small, tenant, stranger, given, sentences):
    agents.provider(stranger, "theirs")
    agents.provider(tenant, "off", is_disabled=True)

    with pytest.raises(Invalid) as refused:
        choose(**given)

    assert refused.value.errors == sentences
    assert (queries.utility_model(tenant.id), recorded()) == (None, [])


VERBS = {
    "set": lambda tenant, by: utility.set_utility_model(tenant_id=tenant.id, provider="small", model="other", by=by),
    "clear": lambda tenant, by: utility.clear_utility_model(tenant_id=tenant.id, by=by),
}


@pytest.mark.parametrize("verb", VERBS)
def test_utility_model_is_the_tenants_and_the_builders(choose, small, tenant, stranger, viewer, verb):
    choose()
    agents.provider(stranger, "small")

    with pytest.raises(MissingPermission):
        VERBS[verb](tenant, viewer)
    with pytest.raises(NotFound):
        VERBS[verb](tenant, system(stranger.id))

    assert queries.utility_model(tenant.id) == ModelRef(provider="small", model="tiny")
    assert queries.utility_model(stranger.id) is None


def test_utility_model_and_other_settings_leave_each_other_alone(choose, small, tenant, builder):
    keeping.change(tenant=tenant, by=system(tenant.id), retention_dry_run_days=3)
    choose()
    rules.change(tenant=tenant, by=system(tenant.id), four_eyes="always")

    kept = Tenant.objects.get(pk=tenant.pk)
    assert (keeping.of(kept).retention_dry_run_days, rules.of(kept).four_eyes) == (3, "always")
    assert queries.utility_model_of(kept) == ModelRef(provider="small", model="tiny")

    utility.clear_utility_model(tenant_id=tenant.id, by=builder)

    kept = Tenant.objects.get(pk=tenant.pk)
    assert (keeping.of(kept).retention_dry_run_days, rules.of(kept).four_eyes) == (3, "always")


# --- Its provider ---------------------------------------------------------------------------------------------------


def test_delete_provider_refuses_while_it_has_the_utility_model(choose, small, builder, tenant):
    choose()

    with pytest.raises(ProviderInUse) as refused:
        providers.delete_provider(provider=small, by=builder)
    assert refused.value.detail == "The utility model is one of small. Set another utility model first, or none."
    assert refused.value.extra == {"agents": [], "utility_model": True}

    agents.published(tenant, "user", model={"provider": "small", "model": "demo-1"})
    with pytest.raises(ProviderInUse, match="used by user.*utility model first") as refused:
        providers.delete_provider(provider=small, by=builder)
    assert refused.value.extra == {"agents": ["user"], "utility_model": True}


def test_delete_provider_asks_about_the_utility_model_of_its_own_tenant(small, builder, stranger):
    agents.provider(stranger, "small")
    utility.set_utility_model(tenant_id=stranger.id, provider="small", model="tiny", by=system(stranger.id))

    providers.delete_provider(provider=small, by=builder)

    assert list(Provider.objects.values_list("tenant_id", flat=True)) == [stranger.id]


def test_provider_can_be_deleted_once_there_is_another_utility_model(choose, small, demo, builder):
    choose()
    choose(provider="demo")

    providers.delete_provider(provider=small, by=builder)

    assert list(Provider.objects.all()) == [demo]


def test_provider_of_the_utility_model_can_be_switched_off(choose, small, builder, tenant):
    choose()

    providers.update_provider(provider=small, by=builder, is_disabled=True)

    assert queries.utility_model(tenant.id) == ModelRef(provider="small", model="tiny")


@pytest.mark.django_db(transaction=True)
def test_provider_is_not_deleted_and_chosen_at_once(choose, small, builder, tenant):
    """Whichever comes first: the utility model never names a provider that is gone."""
    answers = at_once(choose, lambda: providers.delete_provider(provider=small, by=builder))

    assert [type(answer) for answer in answers] in ([ModelRef, ProviderInUse], [Invalid, type(None)])
    assert (queries.utility_model(tenant.id) is not None) == Provider.objects.exists()


# --- What the compile report says ----------------------------------------------------------------------------------


@pytest.fixture
def said(tenant, demo):
    """(severity, code) of what the report says about the model of summaries."""

    def found(**changes):
        report = compile_definition(agents.document("mine", **(changes or SUMMARISES)), tenant_id=tenant.id)
        return [(entry.severity, entry.code) for entry in report.messages if entry.path == "compaction.summarization_model"]

    return found


def test_report_names_the_utility_model_as_the_one_that_summarises(choose, small, said, tenant):
    before = said()
    choose()
    after = said()
    report = compile_definition(agents.document("mine", **SUMMARISES), tenant_id=tenant.id)

    assert (before, after) == ([("warning", "summaries_by_own_model")], [("info", "summaries_by_utility_model")])
    assert "Summaries are written by the utility model: tiny of small." in [entry.message for entry in report.messages]


@pytest.mark.parametrize("change", ["disabled", "gone"])
def test_report_says_when_the_agents_own_model_stands_in(choose, small, said, change):
    choose()
    if change == "disabled":
        Provider.objects.filter(pk=small.pk).update(is_disabled=True)
    else:
        Provider.objects.filter(pk=small.pk).delete()

    assert said() == [("warning", "summaries_by_own_model")]


def test_report_says_nothing_of_the_utility_model_where_it_writes_nothing(choose, small, said):
    choose()

    own = {"compaction": {**SUMMARISES["compaction"], "summarization_model": {"provider": "demo", "model": "demo-1"}}}
    assert said(**own) == []
    assert said(compaction={"strategy": "sliding_window", "trigger_turns": 9}) == []


def test_report_reads_the_utility_model_with_the_providers(choose, small, tenant, django_assert_num_queries):
    choose()

    with django_assert_num_queries(1):
        compile_definition(agents.document("mine", **SUMMARISES), tenant_id=tenant.id)
