import pytest

from governance.domain import registry
from tests.factories import governance as make
from tests.factories import sessions as talk
from tests.governance.declared import sessions_categories


@pytest.fixture
def tenant(db):
    return make.tenant("acme")


@pytest.fixture
def stranger_tenant(db):
    return make.tenant("other")


@pytest.fixture
def admin(tenant):
    return make.actor(tenant, "tenant_admin", username="admin")


@pytest.fixture
def officer(tenant):
    return make.actor(tenant, "privacy_officer", username="officer")


@pytest.fixture
def records_manager(tenant):
    return make.actor(tenant, "records_manager", username="keeper")


@pytest.fixture
def subject(tenant):
    return make.subject(tenant, "anna")


@pytest.fixture
def register(monkeypatch):
    """Replace the categories of upper floors; governance's own stay. Returns a function that takes the new ones."""
    own = {
        key: category
        for key, category in registry.categories().items()
        if type(category).__module__.startswith("governance") and category.model._meta.app_label == "governance"
    }

    def put(categories):
        monkeypatch.setattr(registry, "_categories", {**{category.key: category for category in categories}, **own})

    return put


@pytest.fixture
def declared(register):
    register(sessions_categories())


@pytest.fixture
def agent(tenant):
    return talk.agent(tenant, "helper")


@pytest.fixture
def conversation(agent, subject):
    """A session of the subject with a row in every table."""
    return talk.conversation(agent, subject, key="first")


@pytest.fixture
def archives(settings, tmp_path):
    """Where exports go."""
    settings.DATA_DIR = tmp_path
    return tmp_path / "exports"
