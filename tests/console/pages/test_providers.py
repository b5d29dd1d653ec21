import pytest
from django.urls import reverse

from agents.domain import providers as verbs
from agents.models import Provider
from agents.queries import egress_hosts
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
