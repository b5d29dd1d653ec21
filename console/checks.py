"""What an operator should know before others can reach Lethe. Django runs these before every command."""

from ipaddress import ip_address

from django.conf import settings
from django.core import checks
from django.core.checks import Tags, register


@register(Tags.security)
def reachable_without_encryption(app_configs, **kwargs):
    """Beyond this machine, passwords and keys need HTTPS in front of Lethe."""
    if _is_local(settings.HOST) or settings.SESSION_COOKIE_SECURE:
        return []
    return [
        checks.Warning(
            f"Lethe listens on {settings.HOST}, and passwords and API keys would cross the network unencrypted.",
            hint="Put a proxy with HTTPS in front of it and set LETHE_HTTPS=1, or listen on 127.0.0.1.",
            id="console.W001",
        )
    ]


@register(Tags.security)
def answers_to_every_name(app_configs, **kwargs):
    """A wildcard lets a page of somebody else speak for Lethe under a name of their own (DNS rebinding)."""
    if "*" not in settings.ALLOWED_HOSTS:
        return []
    return [
        checks.Warning(
            "Lethe answers to every host name.",
            hint="List the names people use in LETHE_ALLOWED_HOSTS.",
            id="console.W002",
        )
    ]


def _is_local(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
