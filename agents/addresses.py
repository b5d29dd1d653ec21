"""Which addresses a provider may have: public ones, unless the operator allows private networks."""

import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from django.conf import settings

from agents.errors import AddressUnknown, EgressRefused

RESOLVE_SECONDS = 5
# getaddrinfo has no time limit of its own and cannot be interrupted; its threads are few and end by themselves.
_resolvers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="resolve")

DEFAULT_HOSTS = {
    "openai": "api.openai.com",
    "anthropic": "api.anthropic.com",
    "google": "generativelanguage.googleapis.com",
}


def problem_of_url(url: str) -> str | None:
    """What is wrong with the form of a base URL, as a sentence; None when nothing is."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "This is not a web address."
    if parts.scheme not in ("http", "https"):
        return "The address begins with https:// or http://."
    if not parts.hostname or any(character.isspace() or ord(character) < 33 for character in url):
        return "This is not a web address."
    if parts.username or parts.password:
        return "The address cannot contain a name or password. Enter the key in its own field."
    if parts.query or parts.fragment:
        return "The address ends with its path: no ? and no #."
    return "This port does not exist." if port == 0 else None


def host_of(kind: str, base_url: str) -> str:
    """The host that is called; empty for the demo provider."""
    return ((urlsplit(base_url).hostname or "") if base_url else DEFAULT_HOSTS.get(kind, "")).lower().rstrip(".")


def matches(host: str, rules: list[str]) -> bool:
    """Whether a host is among the allowed ones: itself, or `*.example.com` for what is below example.com."""
    allowed = [rule.lower().rstrip(".") for rule in rules]
    return any(host == rule or (rule.startswith("*.") and host.endswith(rule[1:])) for rule in allowed)


def check_public(host: str) -> None:
    """Raise EgressRefused when a host is, or resolves to, an address inside a private network; AddressUnknown without any.

    Where the operator allows private networks, link-local addresses stay refused: clouds answer there with the machine's
    own credentials, and no model does.
    """
    is_private_allowed = settings.LETHE["allow_private_providers"]
    for address in _resolved(host, may_be_unknown=is_private_allowed):
        if is_link_local(address) and is_private_allowed:
            raise EgressRefused(f"{host} is a link-local address, where no model answers.", host=host)
        if not is_private_allowed and not is_public(address):
            raise EgressRefused(
                f"{host} is an address inside a private network. The operator can allow such providers "
                "with LETHE_ALLOW_PRIVATE_PROVIDERS.",
                host=host,
            )


def _resolved(host: str, *, may_be_unknown: bool) -> list[str]:
    try:
        return resolve(host)
    except AddressUnknown:
        if may_be_unknown:
            return []
        raise


def resolve(host: str) -> list[str]:
    """All addresses of a host. Raises AddressUnknown when there are none, or when nobody answers in time."""
    try:
        found = _resolvers.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM).result(RESOLVE_SECONDS)
    except (OSError, UnicodeError, TimeoutError):
        raise AddressUnknown(f"The host {host} cannot be found.", host=host) from None
    return list(dict.fromkeys(entry[4][0].partition("%")[0] for entry in found))


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet."""
    ip = _plain(address)
    return ip.is_global and not ip.is_multicast


def is_link_local(address: str) -> bool:
    """Whether an IP address means something of the machine's own link only, or of its cloud."""
    ip = _plain(address)
    return ip.is_link_local or ip in _CLOUD


_CLOUD = ipaddress.ip_network("fd00:ec2::/32")


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address; an IPv4 address that is written as an IPv6 one as what it is."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return inner
    return ip
