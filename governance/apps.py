from django.apps import AppConfig


class GovernanceConfig(AppConfig):
    name = "governance"
    verbose_name = "Governance"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self):
        from governance import categories, checks  # noqa: F401, PLC0415 -- registration needs the loaded models
        from governance.domain import hold_replay  # noqa: F401, PLC0415 -- as above
