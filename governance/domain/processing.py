"""What is kept about people, why, for how long and who gets it: drawn from the register of categories.

One description serves the context of an export, the record of processing activities (GDPR, article 30) and the help
page of it.
"""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from governance import queries
from governance.domain import clock, registry
from governance.domain.category import Category, EndsAfter, NoLimit
from governance.models import RetentionPolicy, Tenant

THIRD_PARTY = {
    "include": "included",
    "redact": "blanked in rows that concern other people",
    "omit": "left out",
}


# Asked with a tenant's id: [{"kind", "name", "address"}] of those outside who may receive data of it.
_recipients: list[Callable[[UUID], list[dict[str, str]]]] = []


def tell_recipients(tell: Callable[[UUID], list[dict[str, str]]]) -> None:
    """Register who knows of recipients: an upper floor, from `AppConfig.ready()`."""
    _recipients.append(tell)


def of_category(category: Category, policies: Iterable[RetentionPolicy] = ()) -> dict[str, Any]:
    """One category as JSON. `policies` are those of the tenant that is asked about."""
    about = category.about
    return {
        "key": category.key,
        "title": category.title,
        "purposes": list(about.purposes),
        "legal_basis": about.legal_basis,
        "sources": list(about.sources),
        "recipients": list(about.everybody),
        "third_party": about.third_party,
        "on_erasure": category.method,
        "stores": sorted(store.name for store in category.stores),
        "periods": periods_of(category, policies),
    }


def periods_of(category: Category, policies: Iterable[RetentionPolicy] = ()) -> list[str]:
    """How long rows stay, in sentences: the tenant's policies first, else what the category itself says."""
    told = [_of_policy(policy) for policy in policies if policy.category == category.key and policy.enabled]
    if told:
        return told
    if isinstance(category.limit, EndsAfter):
        return [f"{category.limit.days} days: {category.limit.how}."]
    if isinstance(category.limit, NoLimit):
        return [f"No fixed period. {category.limit.reason}"]
    return [f"As long as what it belongs to: {registry.get(category.group_of[0]).title}."]


def record(*, tenant: Tenant) -> dict[str, Any]:
    """The record of processing activities of one tenant."""
    policies = list(queries.policies_of(tenant.id))
    return {
        "schema": "lethe.art30/1",
        "controller": tenant.name,
        "made_at": clock.now().isoformat().replace("+00:00", "Z"),
        "registry_hash": registry.fingerprint(),
        "security": [
            "Each tenant's rows are read and written under that tenant only.",
            "Identifiers, previews and archives are encrypted with AES-256-GCM under a key of the tenant.",
            "Every change and every look at personal content by staff is recorded in the audit trail.",
        ],
        "recipients": [entry for tell in _recipients for entry in tell(tenant.id)],
        "activities": [of_category(category, policies) for category in registry.categories().values()],
    }


def markdown(record: dict[str, Any]) -> str:
    """The same record for people."""
    lines = [
        f"# Record of processing activities: {record['controller']}",
        "",
        f"Made {record['made_at']} from the register `{record['registry_hash']}`.",
        "",
        "## Security",
        "",
        *(f"- {sentence}" for sentence in record["security"]),
        "",
        "## Recipients by name",
        "",
        *([f"- {entry['kind']}: {entry['name']}{_at(entry)}" for entry in record["recipients"]] or ["- nobody"]),
    ]
    for entry in record["activities"]:
        lines += [
            "",
            f"## {entry['title']} (`{entry['key']}`)",
            "",
            f"- Purposes: {_list(entry['purposes'])}",
            f"- Legal basis: {entry['legal_basis']}",
            f"- Where it comes from: {_list(entry['sources'])}",
            f"- Who receives it: {_list(entry['recipients']) or 'nobody'}",
            f"- How long it stays: {' '.join(entry['periods'])}",
            f"- On erasure: {'the person is removed, totals stay' if entry['on_erasure'] == 'anonymise' else 'deleted'}",
            f"- Text about other people in exports: {THIRD_PARTY[entry['third_party']]}",
            f"- Kept in: {_list(entry['stores'])}",
        ]
    return "\n".join(lines) + "\n"


def _of_policy(policy: RetentionPolicy) -> str:
    where = f" of the agent {policy.agent}" if policy.agent else ""
    basis = {"created": "they were made", "ended": "they ended", "last_activity": "they were last used"}
    action = {"delete": "deleted", "anonymise": "stripped of the person"}.get(policy.action, "archived and deleted")
    since = basis.get(policy.age_basis, policy.age_basis)
    return f"Rows{where} are {action} {policy.length} after {since}."


def _at(entry: dict[str, str]) -> str:
    return f" ({entry['address']})" if entry["address"] else ""


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)
