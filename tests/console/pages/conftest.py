"""The cast of the page tests: a tenant, people with every role and with few, and a stranger's tenant."""

import time

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console import stepup
from governance.domain import members
from governance.permissions import ROLES
from tests.factories import governance


@pytest.fixture
def tenant(db):
    return governance.tenant("northwind")


@pytest.fixture
def sign_in():
    """`sign_in(tenant, "viewer")`: a client of a new member with these roles, who has just entered their password;
    `client.actor` is who acts.
    """

    def enter(tenant, *roles, **values):
        member = governance.member(tenant, roles)
        for name, value in values.items():
            setattr(member, name, value)
        member.save()
        client = Client()
        client.force_login(member)
        session = client.session
        session[stepup.KEY] = time.time()
        session.save()
        client.member = member
        client.membership = member.memberships.select_related("member", "tenant").get()
        client.actor = members.actor_of(membership=client.membership)
        return client

    return enter


@pytest.fixture
def owner(tenant, sign_in):
    """Somebody who may do everything in the tenant."""
    return sign_in(tenant, *ROLES)


@pytest.fixture
def viewer(tenant, sign_in):
    return sign_in(tenant, "viewer")


@pytest.fixture
def stranger(sign_in):
    """Somebody who may do everything, in another tenant."""
    return sign_in(governance.tenant("contoso"), *ROLES)


@pytest.fixture
def queries_of():
    """`queries_of(client, url)`: how many queries a page costs, the second time it is drawn."""

    def count(client, url):
        client.get(url)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url).status_code == 200
        return len(captured)

    return count
