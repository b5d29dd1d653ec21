"""Where calls of a tenant may go: the hosts it allows, and no private network unless the operator does."""

from uuid import UUID

from agents import addresses, queries
from agents.errors import AddressUnknown, EgressRefused


def check(*, tenant_id: UUID, host: str, is_own: bool, host_may_be_unknown: bool, who: str = "providers") -> None:
    """Raise EgressRefused, or AddressUnknown unless that is allowed. `is_own`: somebody entered the address, so that it
    may be any; `who` is named in the refusal."""
    rules = queries.egress_hosts(tenant_id)
    if rules and not addresses.matches(host, rules):
        raise EgressRefused(f"This tenant's {who} may not reach {host}. Allowed: {', '.join(rules)}.", host=host)
    if is_own:
        try:
            addresses.check_public(host)
        except AddressUnknown:
            if not host_may_be_unknown:
                raise
