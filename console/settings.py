"""Django settings. Every value an operator may change is an environment variable, listed in the README."""

import os
from pathlib import Path

import environ
import structlog
from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from console import embedded, secrets

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"

env = environ.Env()

DATA_DIR = Path(env("LETHE_DATA_DIR", default=str(BASE_DIR / ".lethe"))).expanduser().resolve()
DEBUG = env.bool("LETHE_DEBUG", default=False)
SECRET_KEY = env("LETHE_SECRET_KEY", default="") or secrets.read_or_create(DATA_DIR / "secrets" / "django")
# Encrypts provider keys, identifiers and plans at rest: 32 bytes, base64.
ENCRYPTION_KEY = env("LETHE_ENCRYPTION_KEY", default="") or secrets.read_or_create(DATA_DIR / "secrets" / "encryption")
# Keys that are being rotated out: still read, never used for anything new. See manage.py rotate_keys.
OLD_ENCRYPTION_KEYS = env.list("LETHE_OLD_ENCRYPTION_KEYS", default=[])
# Signs receipts: the seed of an Ed25519 key, 32 bytes, base64.
SIGNING_KEY = env("LETHE_SIGNING_KEY", default="") or secrets.read_or_create(DATA_DIR / "secrets" / "signing")
# Signed checkpoints of the audit trail. Best on a disk that the database's administrator cannot write to.
ANCHOR_DIR = Path(env("LETHE_ANCHOR_DIR", default=str(DATA_DIR / "anchors"))).expanduser().resolve()
# Erasures and holds, so that a restored backup cannot undo them. Never inside the database's folder or its backups.
LEDGER_DIR = Path(env("LETHE_LEDGER_DIR", default=str(DATA_DIR / "ledger"))).expanduser().resolve()
# Where retention puts rows that it archives before it deletes them. Best on another disk than the database.
ARCHIVE_DIR = Path(env("LETHE_ARCHIVE_DIR")).expanduser().resolve() if env("LETHE_ARCHIVE_DIR", default="") else None
# The keys of subjects, for tenants that want them. Never inside the database's folder or its backups. None: no such keys.
SUBJECT_KEY_DIR = Path(env("LETHE_SUBJECT_KEY_DIR")).expanduser().resolve() if env("LETHE_SUBJECT_KEY_DIR", default="") else None
# Where the operator keeps dumps and archived WAL, if this machine can see them: to be searched, and no place for the ledger.
BACKUP_DIR = Path(env("LETHE_BACKUP_DIR")).expanduser().resolve() if env("LETHE_BACKUP_DIR", default="") else None

HOST = env("LETHE_HOST", default="127.0.0.1")
PORT = env.int("PORT", default=8000)
WEB_PROCESSES = max(1, env.int("LETHE_WEB_PROCESSES", default=min(2, os.cpu_count() or 1)))
ALLOWED_HOSTS = env.list("LETHE_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("LETHE_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    # Ours first: their templates win, and so does `Session` in the shell's automatic imports.
    "governance",
    "agents",
    "sessions.apps.SessionsConfig",
    "console",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "template_partials",
    "pgtrigger",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    # Apps of the operator's own, which may register categories of personal data in their AppConfig.ready().
    *env.list("LETHE_APPS", default=[]),
]

MIDDLEWARE = [
    "console.middleware.RequestIdMiddleware",
    "console.middleware.DownloadsMiddleware",
    "console.middleware.PagesMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "console.middleware.StaticFilesMiddleware",
    "console.middleware.ContentPolicyMiddleware",
    "console.middleware.BrowserSessionMiddleware",
    "console.middleware.LanguageMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "console.middleware.MemberMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "console.middleware.TenantMiddleware",
    "console.quarantine.QuarantineMiddleware",
    "console.middleware.MessagesMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "console.middleware.FragmentsMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "console.navigation.context",
            ],
            "builtins": ["template_partials.templatetags.partials", "console.templatetags.ui", "console.templatetags.governing"],
        },
    }
]

# OWNER is how to connect as the role that owns the tables, for commands that migrate: see governance/database_roles.py.
if env("DATABASE_URL", default=""):
    DATABASES = {"default": env.db("DATABASE_URL")}
    if env("LETHE_OWNER_DATABASE_URL", default=""):
        _owner = {"OPTIONS": {}, **env.db("LETHE_OWNER_DATABASE_URL")}
        if _owner["NAME"] != DATABASES["default"]["NAME"]:
            raise ImproperlyConfigured("LETHE_OWNER_DATABASE_URL and DATABASE_URL name different databases.")
        DATABASES["default"]["OWNER"] = {name: _owner[name] for name in ("USER", "PASSWORD", "HOST", "PORT", "OPTIONS")}
else:
    DATABASES = {
        "default": {
            "ENGINE": "console.postgres", "NAME": embedded.DATABASE_NAME, "DATA_DIR": str(DATA_DIR),
            "USER": embedded.RUNTIME_ROLE, "OWNER": {"USER": embedded.OWNER_ROLE},
        }
    }  # fmt: skip
DATABASES["default"].setdefault("OPTIONS", {})
DATABASES["default"]["OPTIONS"].setdefault(
    "pool", {"min_size": 0, "max_size": env.int("LETHE_DATABASE_POOL", default=40), "timeout": 20}
)
DATABASES["default"]["CONN_MAX_AGE"] = 0
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "governance.Member"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator", "OPTIONS": {"user_attributes": ("username", "display_name")}},
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "sign-in"
SESSION_COOKIE_NAME = "lethe_session"
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.bool("LETHE_HTTPS", default=False)
CSRF_COOKIE_NAME = "lethe_csrf"
CSRF_FAILURE_VIEW = "console.views.errors.csrf_failed"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English")]
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
# WhiteNoise warns about a folder that is not there yet.
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
# `manage.py up` collects the files once, compressed and named by their content; everything else (tests, a
# development server) serves them from the packages.
_collected = env.bool("LETHE_COLLECTED_STATIC", default=False)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _collected
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not _collected
WHITENOISE_AUTOREFRESH = DEBUG

# 12 MB: a 10 MB message with its JSON escapes still reaches our own answer.
DATA_UPLOAD_MAX_MEMORY_SIZE = env.int("LETHE_MAX_REQUEST_BYTES", default=12 * 1024 * 1024)
# The editor's form has a few hundred fields.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5000

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["console.api.authentication.BearerKey"],
    "DEFAULT_PERMISSION_CLASSES": ["console.api.permissions.HasPermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.api.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "console.api.errors.handle",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Lethe",
    "DESCRIPTION": "Agents that remember what they should, and forget what they must.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api",
    "OAS_VERSION": "3.1.1",
    "COMPONENT_SPLIT_REQUEST": False,
    "COMPONENT_SPLIT_PATCH": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": [],
    "PATH_CONVERTER_OVERRIDES": {"file": {"type": "string"}},
}

# Celery. With no broker configured, messages are files in the data directory. A lost or doubled message is
# harmless: the rows in PostgreSQL are the truth, and the sweeper enqueues again what nobody works on.
CELERY_BROKER_URL = env("CELERY_BROKER_URL", default="filesystem://localhost//")
if CELERY_BROKER_URL.startswith("filesystem://"):
    _queue = DATA_DIR / "queue"
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_queue / "messages"),
        "data_folder_out": str(_queue / "messages"),
        "control_folder": str(_queue / "control"),
        "polling_interval": 0.2,
    }
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "beat-schedule")
CELERY_BEAT_SCHEDULE = {
    "sweep-runs": {"task": "sessions.sweep_runs", "schedule": 5.0},
    "sweep-files": {"task": "sessions.sweep_files", "schedule": 3600.0},
    "sweep-governance": {"task": "governance.sweep", "schedule": 15.0},
}

LETHE = {
    "lease_seconds": env.int("LETHE_LEASE_SECONDS", default=30),
    "heartbeat_seconds": env.int("LETHE_HEARTBEAT_SECONDS", default=8),
    "drain_seconds": env.int("LETHE_DRAIN_SECONDS", default=30),
    "queue_limit": env.int("LETHE_QUEUE_LIMIT", default=100),
    "engine_threads": env.int("LETHE_ENGINE_THREADS", default=16),
    "web_threads": env.int("LETHE_WEB_THREADS", default=16),
    "message_max_chars": env.int("LETHE_MESSAGE_MAX_CHARS", default=200_000),
    "tool_output_chars": env.int("LETHE_TOOL_OUTPUT_CHARS", default=20_000),
    # Where the bytes of agents' files are: postgresql, disk, disk:/a/folder, or redis://host:6379/0.
    "file_store": env("LETHE_FILE_STORE", default="postgresql"),
    "workspace_file_bytes": env.int("LETHE_WORKSPACE_FILE_BYTES", default=256 * 1024),
    "workspace_session_bytes": env.int("LETHE_WORKSPACE_SESSION_BYTES", default=5 * 1024 * 1024),
    "workspace_tenant_bytes": env.int("LETHE_WORKSPACE_TENANT_BYTES", default=500 * 1024 * 1024),
    "agent_file_bytes": env.int("LETHE_AGENT_FILE_BYTES", default=256 * 1024),
    "approval_hours": env.int("LETHE_APPROVAL_HOURS", default=24),
    # Ten attachments of 8 MiB, and the fields beside them.
    "form_bytes": env.int("LETHE_MAX_FORM_BYTES", default=84 * 1024 * 1024),
    "keepalive_seconds": env.int("LETHE_KEEPALIVE_SECONDS", default=15),
    "purge_after_minutes": env.int("LETHE_PURGE_AFTER_MINUTES", default=60),
    "purge_rewrite_mb": env.int("LETHE_PURGE_REWRITE_MB", default=32),
    # How long backups and archived WAL are kept; None when nobody has said so.
    "backup_days": env.int("LETHE_BACKUP_DAYS", default=None),
    # How long backups of the keys of subjects are kept; None when nobody has said so.
    "key_backup_days": env.int("LETHE_KEY_BACKUP_DAYS", default=None),
    # How long providers of models say that they keep what they were sent; None when nobody has looked it up.
    "provider_days": env.int("LETHE_PROVIDER_DAYS", default=None),
    # How deep agents may call each other, and how long one call may take where its caller sets no limit.
    "agent_depth": env.int("LETHE_AGENT_DEPTH", default=3),
    "agent_seconds": env.int("LETHE_AGENT_SECONDS", default=300),
    # Programs that MCP servers of the kind stdio may be, by name or path; none: no such server.
    "mcp_commands": env.list("LETHE_MCP_COMMANDS", default=[]),
    "mcp_resource_bytes": env.int("LETHE_MCP_RESOURCE_BYTES", default=65_536),
    "mcp_resources_bytes": env.int("LETHE_MCP_RESOURCES_BYTES", default=262_144),
    # One role that owns the tables and runs web, worker and beat as well, where a database offers no second one.
    "one_database_role": env.bool("LETHE_ONE_DATABASE_ROLE", default=False),
    "allow_private_providers": env.bool("LETHE_ALLOW_PRIVATE_PROVIDERS", default=False),
}

structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Without the values of variables: they are rows and texts of people.
        structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
        structlog.processors.JSONRenderer(),
    ],
    wrapper_class=structlog.make_filtering_bound_logger(20),
    logger_factory=structlog.PrintLoggerFactory(),
    cache_logger_on_first_use=True,
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {
            "()": "structlog.stdlib.ProcessorFormatter",
            "processor": structlog.processors.JSONRenderer(),
            "foreign_pre_chain": [
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
            ],
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": env("LETHE_LOG_LEVEL", default="WARNING")},
    # What the protocol's library logs of an answer that it cannot read is the answer.
    "loggers": {"lethe": {"level": "INFO"}, "mcp": {"level": "CRITICAL"}, "django.request": {"level": "ERROR"}},
}
