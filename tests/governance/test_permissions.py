"""The table of the documentation, cell by cell."""

import pytest

from governance.actors import Actor, system
from governance.errors import MissingPermission
from governance.ids import uuid7
from governance.permissions import PERMISSIONS, ROLES, SCOPES, of_roles, of_scopes

GOVERNANCE = {
    "subject.search": "officer approver",
    "subject.preview": "officer approver",
    "subject.export": "officer",
    "subject.erase": "officer",
    "subject.restrict": "officer",
    "request.extend": "officer",
    "request.cancel": "officer",
    "request.approve": "approver",
    "content.read": "officer approver",
    "hold.place": "records",
    "hold.release": "records",
    "retention.edit": "records",
    "retention.run": "records",
    "retention.approve": "admin",
    "audit.read": "officer approver records auditor admin",
    "audit.verify": "officer approver records auditor admin",
    "receipt.read": "officer approver records auditor admin",
}
NAMES = {
    "officer": "privacy_officer", "approver": "privacy_approver", "records": "records_manager", "auditor": "auditor",
    "admin": "tenant_admin",
}  # fmt: skip


@pytest.mark.parametrize("permission", GOVERNANCE)
def test_governance_permissions_by_role(permission):
    allowed = {role for role in ROLES if permission in of_roles([role])}

    assert allowed == {NAMES[name] for name in GOVERNANCE[permission].split()}


@pytest.mark.parametrize("role", ["viewer", "operator", "builder"])
def test_people_who_run_and_build_agents_govern_nothing(role):
    assert not set(GOVERNANCE) & of_roles([role])


def test_keys_never_approve_release_or_read_content():
    everything = of_scopes(SCOPES)

    assert not {"request.approve", "retention.approve", "hold.release", "content.read"} & everything


def test_governance_scopes():
    read, write = of_scopes(["governance:read"]), of_scopes(["governance:write"])

    assert {"subject.search", "subject.preview", "request.read", "receipt.read", "audit.read"} <= read
    assert not {"subject.export", "subject.erase", "request.cancel", "hold.place", "retention.edit", "retention.run"} & read
    assert {"subject.export", "subject.erase", "request.cancel", "hold.place", "retention.edit", "retention.run"} <= write


def test_roles_add_up():
    assert of_roles(["auditor", "records_manager"]) == of_roles(["auditor"]) | of_roles(["records_manager"])
    assert of_roles([]) == of_scopes([]) == frozenset()


def test_missing_permission_says_what_would_allow_it():
    member = Actor(uuid7(), "member", "m", "eva")
    key = Actor(uuid7(), "api_key", "k", "app")

    with pytest.raises(MissingPermission, match="the role privacy officer"):
        member.require("subject.erase")
    with pytest.raises(MissingPermission, match="the scope governance:write"):
        key.require("subject.erase")
    with pytest.raises(MissingPermission, match="API keys cannot do this"):
        key.require("request.approve")


def test_lethe_itself_may_do_everything():
    assert all(system(uuid7()).may(permission) for permission in PERMISSIONS)


def test_asking_for_an_unknown_permission_is_a_mistake_in_the_code():
    with pytest.raises(AssertionError):
        system(uuid7()).may("everything")
