"""The catalogue: agents, their versions, and the providers of models."""

from fnmatch import fnmatchcase

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from governance.ids import uuid7


class AgentQuerySet(models.QuerySet):
    def of(self, tenant_id):
        return self.filter(tenant_id=tenant_id)

    def listed(self):
        return self.filter(archived_at=None)


class Agent(models.Model):
    """A named entry of a tenant's catalogue: one draft being edited, numbered versions, one of them published."""

    class Origin(models.TextChoices):
        CATALOGUE = "catalogue"
        CODE = "code"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="agents")
    name = models.CharField(max_length=64)
    # Copied from the draft, for lists and search.
    display_name = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    origin = models.CharField(max_length=10, choices=Origin, default=Origin.CATALOGUE)
    is_disabled = models.BooleanField(default=False)
    archived_at = models.DateTimeField(null=True, blank=True)
    # The draft: a definition that may be invalid; `draft_counter` rises with every save.
    draft = models.JSONField(default=dict)
    draft_counter = models.PositiveIntegerField(default=1)
    draft_saved_at = models.DateTimeField(db_default=Now())
    draft_saved_by = models.CharField(max_length=200, blank=True)
    published = models.ForeignKey(
        "agents.AgentVersion", models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now())

    objects = AgentQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="agent_name_once")]

    def __str__(self):
        return self.display_name or self.name


class AgentVersion(models.Model):
    """An immutable, numbered definition. A trigger refuses to change one (migration version_is_immutable)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey("agents.Agent", models.CASCADE, related_name="versions")
    tenant_id = models.UUIDField()
    number = models.PositiveIntegerField()
    document = models.JSONField()
    # SHA-256 of the canonical document: identical content is not published twice.
    digest = models.CharField(max_length=64)
    note = models.TextField(blank=True)
    published_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="agent_version_once")]

    def __str__(self):
        return f"{self.agent.name} v{self.number}"


class Skill(models.Model):
    """A way of working that agents open when they need it: a draft being edited, numbered versions, one published."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="skills")
    name = models.CharField(max_length=64)
    is_disabled = models.BooleanField(default=False)
    # {"description", "instructions", "resources": [{"name", "description", "text"}]}; `agents.skills` has its rules.
    draft = models.JSONField(default=dict)
    draft_counter = models.PositiveIntegerField(default=1)
    draft_saved_at = models.DateTimeField(db_default=Now())
    draft_saved_by = models.CharField(max_length=200, blank=True)
    published = models.ForeignKey("agents.SkillVersion", models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="skill_name_once")]

    def __str__(self):
        return self.name


class SkillVersion(models.Model):
    """An immutable, numbered skill. A trigger refuses to change one (migration skills)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    skill = models.ForeignKey("agents.Skill", models.CASCADE, related_name="versions")
    tenant_id = models.UUIDField()
    number = models.PositiveIntegerField()
    document = models.JSONField()
    # SHA-256 of the canonical document: identical content is not published twice.
    digest = models.CharField(max_length=64)
    note = models.TextField(blank=True)
    published_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["skill", "number"], name="skill_version_once")]

    def __str__(self):
        return f"{self.skill.name} v{self.number}"


class Provider(models.Model):
    """Where models are reached: kind, address, key (encrypted, or the name of an environment variable), limits."""

    class Kind(models.TextChoices):
        DEMO = "demo", "Demo (built in, no key)"
        OPENAI = "openai", "OpenAI"
        OPENAI_COMPATIBLE = "openai_compatible", "OpenAI compatible"
        ANTHROPIC = "anthropic", "Anthropic"
        GOOGLE = "google", "Google"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="providers")
    name = models.SlugField(max_length=64)
    kind = models.CharField(max_length=20, choices=Kind)
    base_url = models.URLField(max_length=500, blank=True)
    # For kind openai: the Responses API or chat completions.
    api = models.CharField(
        max_length=10, choices=[("responses", "Responses"), ("chat", "Chat completions")], default="responses"
    )
    key_enc = models.BinaryField(null=True, blank=True)
    # The last four characters, so that a person can tell keys apart.
    key_hint = models.CharField(max_length=8, blank=True)
    key_env = models.CharField(max_length=100, blank=True)
    # [{"name", "context_window", "max_output_tokens", "input_price", "cached_input_price", "output_price"}]: prices in
    # US dollars for a million tokens, as text; absent prices are looked up in genai-prices.
    model_list = models.JSONField(default=list, blank=True)
    # What is paid for besides tokens: {"web_search": US dollars for 1,000 searches, as text}; absent: list prices.
    pricing = models.JSONField(default=dict, blank=True)
    max_concurrency = models.PositiveIntegerField(null=True, blank=True)
    is_disabled = models.BooleanField(default=False)
    # The circuit breaker, shared by all workers.
    failures = models.PositiveIntegerField(default=0)
    open_until = models.DateTimeField(null=True, blank=True)
    last_test = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="provider_name_once"),
            models.CheckConstraint(
                condition=models.Q(key_enc=None) | models.Q(key_env=""), name="provider_one_source_of_key"
            ),
        ]

    def __str__(self):
        return self.name


class EgressRule(models.Model):
    """Hosts that a tenant's providers may reach. No rule means: every public host."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.OneToOneField("governance.Tenant", models.CASCADE, related_name="egress")
    hosts = ArrayField(models.CharField(max_length=253), default=list)

    def __str__(self):
        return ", ".join(self.hosts)


class McpServer(models.Model):
    """A server of tools and texts that speaks MCP: where it is, what of it agents may use, what it offered last."""

    class Transport(models.TextChoices):
        HTTP = "http", "Streamable HTTP"
        STDIO = "stdio", "A program on this machine (stdio)"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("governance.Tenant", models.CASCADE, related_name="mcp_servers")
    name = models.CharField(max_length=32)
    transport = models.CharField(max_length=10, choices=Transport, default=Transport.HTTP)
    url = models.CharField(max_length=500, blank=True)
    command = models.CharField(max_length=300, blank=True)
    args = ArrayField(models.CharField(max_length=500), default=list, blank=True)
    # Headers of HTTP or variables of a program, as an encrypted JSON object; their names, so that a person sees them.
    secrets_enc = models.BinaryField(null=True, blank=True)
    secret_names = ArrayField(models.CharField(max_length=100), default=list, blank=True)
    # Patterns of the server's own names; none means all tools. Those of `reading_tools` change nothing, says the operator.
    tool_filter = ArrayField(models.CharField(max_length=130), default=list, blank=True)
    reading_tools = ArrayField(models.CharField(max_length=130), default=list, blank=True)
    asks_approval = models.BooleanField(default=True)
    timeout_s = models.PositiveIntegerField(default=30)
    is_disabled = models.BooleanField(default=False)
    # As of the last check that succeeded: `agents.mcp.targets.Listing`.
    tools = models.JSONField(default=list, blank=True)
    resources = models.JSONField(default=list, blank=True)
    # {"ok", "code", "message", "latency_ms", "left_out", "at"}; null when nobody has looked yet.
    last_check = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="mcp_server_name_once"),
            models.CheckConstraint(
                condition=models.Q(transport="http", command="") | models.Q(transport="stdio", url=""),
                name="mcp_server_one_address",
            ),
        ]

    def __str__(self):
        return self.name

    @property
    def is_reachable(self) -> bool:
        """Whether it answered when it was last looked at."""
        return bool(self.last_check and self.last_check.get("ok"))

    @property
    def offered_tools(self) -> list[dict]:
        """The tools that agents may use, after the filter."""
        return [tool for tool in self.tools if not self.tool_filter or matches(tool["name"], self.tool_filter)]

    def only_reads(self, tool: dict) -> bool:
        """What the server itself says of its tools counts for nothing here."""
        return matches(tool["name"], self.reading_tools)


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
