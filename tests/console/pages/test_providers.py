import pytest
from django.urls import reverse

from agents.definition import ModelRef
from agents.domain import providers as verbs
from agents.domain import utility
from agents.models import Provider
from agents.queries import egress_hosts, utility_model
from tests.factories import sessions

pytestmark = pytest.mark.django_db

EMPTY = {"models-TOTAL_FORMS": "0", "models-INITIAL_FORMS": "0"}


def rows(*models):
    """The formset's fields for these models."""
    data = {"models-TOTAL_FORMS": str(len(models)), "models-INITIAL_FORMS": "0"}
    for number, model in enumerate(models):
        data |= {f"models-{number}-{name}": value for name, value in model.items()}
    return data


@pytest.fixture
def provider(tenant, owner):
    return verbs.create_provider(tenant_id=tenant.pk, by=owner.actor, name="openai", kind="openai", key="sk-secret-1234")


def test_provider_is_made_with_its_models_and_prices(owner, tenant):
    response = owner.post(
        reverse("provider-new"),
        {"name": "house", "kind": "openai_compatible", "base_url": "https://models.example.com/v1", "key": "sk-abcd", "api": "chat"}
        | rows({"name": "small", "context_window": "32000", "input_price": "0.25", "output_price": "2"}, {"name": ""}),
    )

    made = Provider.objects.get(tenant=tenant)
    assert response.url == reverse("provider", args=["house"])
    assert made.model_list == [{"name": "small", "context_window": 32000, "input_price": "0.25", "output_price": "2"}]
    assert verbs.secret_of(made) == "sk-abcd"


def test_provider_that_cannot_be_is_said_at_the_field(owner, provider):
    response = owner.post(reverse("provider-new"), {"name": "openai", "kind": "openai", "key_env": "HOME"} | EMPTY)

    assert response.status_code == 422
    assert list(response.context["form"].errors) == ["key_env"]


def test_model_without_a_name_is_said_in_its_row(owner):
    response = owner.post(reverse("provider-new"), {"name": "x", "kind": "openai"} | rows({"name": "", "context_window": "1000"}))

    assert response.status_code == 422
    assert response.context["models"].errors == [{"name": ["Name the model."]}]


def test_key_never_comes_back(owner, provider):
    pages = [owner.get(reverse(name, args=["openai"])).content.decode() for name in ("provider", "provider-edit")]

    assert all("sk-secret" not in page and "1234" in page for page in pages)


def test_key_stays_when_the_field_is_left_empty(owner, provider):
    owner.post(reverse("provider-edit", args=["openai"]), {"api": "responses", "max_concurrency": "4"} | EMPTY)

    provider.refresh_from_db()
    assert (verbs.secret_of(provider), provider.max_concurrency) == ("sk-secret-1234", 4)


def test_key_is_replaced_and_forgotten(owner, provider):
    owner.post(reverse("provider-edit", args=["openai"]), {"api": "responses", "key": "sk-new-5678"} | EMPTY)
    provider.refresh_from_db()
    replaced = verbs.secret_of(provider)
    owner.post(reverse("provider-edit", args=["openai"]), {"api": "responses", "forget_key": "on"} | EMPTY)
    provider.refresh_from_db()

    assert (replaced, verbs.secret_of(provider)) == ("sk-new-5678", None)


def test_model_is_removed(owner, provider):
    verbs.update_provider(provider=provider, by=owner.actor, models=[{"name": "a"}, {"name": "b"}])

    owner.post(reverse("provider-edit", args=["openai"]), {"api": "responses"} | rows({"name": "a", "DELETE": "on"}, {"name": "b"}))

    provider.refresh_from_db()
    assert provider.model_list == [{"name": "b"}]


def test_connection_is_tested_and_the_result_stays(owner, tenant):
    sessions.provider(tenant, "demo", name="demo")

    part = owner.post(reverse("provider-test", args=["demo"]), headers={"HX-Request": "true"}).content.decode()
    page = owner.get(reverse("provider", args=["demo"])).content.decode()

    assert part.startswith('<div id="test"')
    assert 'class="note ok"' in part
    assert 'class="note ok"' in page


def test_failed_connection_says_what_is_wrong(owner, tenant, monkeypatch):
    monkeypatch.delenv("MISSING_API_KEY", raising=False)
    verbs.create_provider(tenant_id=tenant.pk, by=owner.actor, name="openai", kind="openai", key_env="MISSING_API_KEY")

    response = owner.post(reverse("provider-test", args=["openai"]), follow=True)

    assert "The environment variable MISSING_API_KEY is not set" in response.content.decode()


def test_provider_is_deleted(owner, provider):
    owner.post(reverse("provider-delete", args=["openai"]))

    assert not Provider.objects.filter(pk=provider.pk).exists()


def test_provider_in_use_is_not_deleted_and_the_page_says_why(owner, tenant):
    sessions.agent(tenant, "research")
    made = sessions.provider(tenant, "demo", name="demo")

    page = owner.get(reverse("provider", args=["demo"])).content.decode()
    owner.post(reverse("provider-delete", args=["demo"]))

    assert "Published agents use it: research." in page
    assert Provider.objects.filter(pk=made.pk).exists()


@pytest.mark.parametrize("name", ["provider-edit", "provider-test", "provider-delete"])
def test_foreign_provider_is_not_found(stranger, provider, name):
    assert stranger.get(reverse("provider", args=["openai"])).status_code == 404
    assert stranger.post(reverse(name, args=["openai"]), EMPTY).status_code == 404


def test_provider_pages_need_their_roles(viewer, provider):
    assert viewer.get(reverse("providers")).status_code == 200
    assert viewer.get(reverse("provider", args=["openai"])).status_code == 200
    assert viewer.get(reverse("provider-new")).status_code == 403
    for name in ("provider-edit", "provider-test", "provider-delete"):
        assert viewer.post(reverse(name, args=["openai"]), EMPTY).status_code == 403


def test_provider_list_costs_the_same_for_more_rows(owner, tenant, provider, queries_of):
    one = queries_of(owner, reverse("providers"))
    for number in range(2):
        sessions.provider(tenant, "demo", name=f"demo-{number}")

    assert queries_of(owner, reverse("providers")) == one


def test_hosts_are_saved_and_refused(owner, tenant):
    owner.post(reverse("egress"), {"hosts": "API.example.com\nmodels.example.com\n"})
    wrong = owner.post(reverse("egress"), {"hosts": "https://no spaces/"})

    assert egress_hosts(tenant.pk) == ["api.example.com", "models.example.com"]
    assert wrong.status_code == 422
    assert list(wrong.context["form"].errors) == ["hosts"]


def test_hosts_need_the_role_of_a_builder(viewer):
    assert viewer.post(reverse("egress"), {"hosts": ""}).status_code == 403


def test_price_of_searches_is_entered_shown_and_taken_back(owner, provider):
    owner.post(reverse("provider-edit", args=["openai"]), {"api": "responses", "search_price": "12.5"} | EMPTY)
    provider.refresh_from_db()
    page = owner.get(reverse("provider", args=["openai"])).content.decode()
    priced = provider.pricing
    owner.post(reverse("provider-edit", args=["openai"]), {"api": "responses", "search_price": ""} | EMPTY)
    provider.refresh_from_db()

    assert (priced, provider.pricing) == ({"web_search": "12.5"}, {})
    assert "1,000 web searches" in page


def test_utility_model_is_chosen_shown_and_taken_back(owner, tenant, provider):
    before = owner.get(reverse("providers")).content.decode()
    owner.post(reverse("utility-model"), {"provider": "openai", "model": "gpt-small"})
    chosen, page = utility_model(tenant.pk), owner.get(reverse("providers"))
    owner.post(reverse("utility-model"), {"provider": "openai", "model": "gpt-small", "clear": "yes"})

    assert "<p>None is set.</p>" in before
    assert "<p>None is set.</p>" not in page.content.decode()
    assert chosen == ModelRef(provider="openai", model="gpt-small")
    assert "openai/gpt-small" in page.content.decode()
    assert page.context["utility_form"].initial == {"provider": "openai", "model": "gpt-small"}
    assert utility_model(tenant.pk) is None


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"provider": "", "model": "m"}, ["provider"]),
        ({"provider": "openai", "model": ""}, ["model"]),
        ({"provider": "theirs", "model": "m"}, ["provider"]),
        ({"provider": "off", "model": "m"}, ["provider"]),
        ({}, ["provider", "model"]),
    ],
)
def test_utility_model_that_cannot_be_is_said_at_the_field(owner, tenant, stranger, provider, given, fields):
    sessions.provider(stranger.membership.tenant, "demo", name="theirs")
    sessions.provider(tenant, "demo", name="off", is_disabled=True)

    response = owner.post(reverse("utility-model"), given)

    assert response.status_code == 422
    assert list(response.context["utility_form"].errors) == fields
    assert utility_model(tenant.pk) is None


def test_page_offers_providers_that_are_switched_on_and_the_models_they_list(owner, tenant, provider):
    sessions.provider(tenant, "demo", name="off", is_disabled=True)
    verbs.update_provider(provider=provider, by=owner.actor, models=[{"name": "b"}, {"name": "a"}])

    page = owner.get(reverse("providers"))

    assert [value for value, _ in page.context["utility_form"].fields["provider"].widget.choices] == ["", "openai"]
    assert page.context["models"] == [("a", "openai"), ("b", "openai")]


def test_page_says_when_the_utility_model_cannot_be_used(owner, tenant, provider):
    utility.set_utility_model(tenant_id=tenant.pk, provider="openai", model="m", by=owner.actor)
    usable = owner.get(reverse("providers")).content.decode()
    verbs.update_provider(provider=provider, by=owner.actor, is_disabled=True)
    disabled = owner.get(reverse("providers")).content.decode()
    Provider.objects.filter(pk=provider.pk).delete()
    gone = owner.get(reverse("providers")).content.decode()

    assert ["openai cannot be used now." in page for page in (usable, disabled, gone)] == [False, True, True]


def test_provider_of_the_utility_model_is_not_deleted_and_the_page_says_why(owner, tenant, provider):
    utility.set_utility_model(tenant_id=tenant.pk, provider="openai", model="m", by=owner.actor)

    page = owner.get(reverse("provider", args=["openai"])).content.decode()
    after = owner.post(reverse("provider-delete", args=["openai"]), follow=True).content.decode()

    assert "The utility model is one of its models." in page
    assert 'id="delete"' not in page
    assert "The utility model is one of openai." in after
    assert Provider.objects.filter(pk=provider.pk).exists()


def test_utility_model_needs_the_role_of_a_builder(viewer, tenant, provider):
    page = viewer.get(reverse("providers")).content.decode()

    assert "Utility model" in page
    assert reverse("utility-model") not in page
    assert viewer.post(reverse("utility-model"), {"provider": "openai", "model": "m"}).status_code == 403
    assert viewer.post(reverse("utility-model"), {"clear": "yes"}).status_code == 403
    assert utility_model(tenant.pk) is None


def test_utility_model_of_another_tenant_is_neither_shown_nor_changed(owner, stranger, provider):
    theirs = stranger.membership.tenant
    sessions.provider(theirs, "demo", name="demo")
    stranger.post(reverse("utility-model"), {"provider": "demo", "model": "their-model"})

    page = owner.get(reverse("providers")).content.decode()
    owner.post(reverse("utility-model"), {"clear": "yes"})

    assert "their-model" not in page
    assert utility_model(theirs.pk) == ModelRef(provider="demo", model="their-model")
