from rest_framework import serializers

from console.api.operations import Paging
from console.api.serializers.base import Decimal, Id, Name, Output, Strict, Text, Time
from governance.permissions import ROLES, SCOPES
from sessions.models import Quota as QuotaModel


# Keys
class KeyFilters(Paging):
    revoked = serializers.BooleanField(default=False, help_text="Revoked keys instead of the living ones.")


class ApiKeyBody(Strict):
    name = Name(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(list(SCOPES)), allow_empty=False, max_length=len(SCOPES))
    subject = Text(required=False, allow_null=True, default=None, max_length=200, help_text="The application's id of the person the key speaks for.")
    expires_at = Time(required=False, allow_null=True, default=None)


class ApiKey(Output):
    id = Id("key")
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="The first characters of the key.")
    scopes = serializers.ListField(child=serializers.CharField())
    subject_id = Id("sub", allow_null=True)
    created_by = serializers.CharField()
    created_at = Time()
    expires_at = Time(allow_null=True)
    last_used_at = Time(allow_null=True)
    revoked_at = Time(allow_null=True)


class NewApiKey(ApiKey):
    """A key just made. This is the only time that it can be read."""

    secret = serializers.CharField()


# Members
class MemberBody(Strict):
    username = Name(max_length=150)
    display_name = Text(required=False, default="", allow_blank=True, max_length=200)
    roles = serializers.ListField(child=serializers.ChoiceField(list(ROLES)), allow_empty=False, max_length=len(ROLES))


class MemberChanges(Strict):
    roles = serializers.ListField(child=serializers.ChoiceField(list(ROLES)), allow_empty=False, max_length=len(ROLES))


class Member(Output):
    id = Id("mem")
    username = serializers.CharField(source="member.username")
    display_name = serializers.CharField()
    roles = serializers.ListField(child=serializers.CharField())
    created_at = Time()


class NewMember(Member):
    """A member just added. The one-time password is null for somebody who signs in elsewhere already."""

    one_time_password = serializers.CharField(allow_null=True)


# Tenant
class TenantChanges(Strict):
    name = Text(required=False, max_length=200)
    timezone = Name(required=False, max_length=64)


class Tenant(Output):
    slug = serializers.CharField()
    name = serializers.CharField()
    timezone = serializers.CharField()
    created_at = Time()


class Me(Output):
    """What a key is and may do."""

    id = Id("key")
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    expires_at = Time(allow_null=True)
    tenant = Tenant()
    subject_id = Id("sub", allow_null=True, help_text="The subject that this call speaks for.")


# Usage and quotas
class UsageQuery(serializers.Serializer):
    days = serializers.IntegerField(default=30, min_value=1, max_value=366)
    agent = serializers.CharField(required=False, max_length=64, help_text="The agent's name.")


class QuotaBody(Strict):
    scope = serializers.ChoiceField(QuotaModel.Scope.choices)
    scope_ref = Name(required=False, default="", allow_blank=True, max_length=64, help_text="The id of one agent, key or subject; empty for each of them by itself.")
    measure = serializers.ChoiceField(QuotaModel.Measure.choices)
    period = serializers.ChoiceField(QuotaModel.Period.choices)
    limit = Decimal(decimal_places=6, min_value=0, help_text="Runs, tokens or US dollars.")


class QuotaChanges(Strict):
    limit = Decimal(decimal_places=6, min_value=0)


class Quota(Output):
    """A limit, and how much of it is used in the present period by whoever used most."""

    id = Id("quo", source="quota.id")
    scope = serializers.ChoiceField(QuotaModel.Scope.choices, source="quota.scope")
    scope_ref = serializers.CharField(source="quota.scope_ref")
    measure = serializers.ChoiceField(QuotaModel.Measure.choices, source="quota.measure")
    period = serializers.ChoiceField(QuotaModel.Period.choices, source="quota.period")
    limit = Decimal(decimal_places=6, source="quota.limit")
    used = Decimal(decimal_places=6)
    reserved = Decimal(decimal_places=6, help_text="Held by runs that have not ended.")
    resets_at = Time(source="ends_at")
    created_by = serializers.CharField(source="quota.created_by")
    created_at = Time(source="quota.created_at")
