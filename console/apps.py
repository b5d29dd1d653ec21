from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"
    verbose_name = "Console"

    def ready(self):
        from console import categories, checks  # noqa: F401, PLC0415 -- registration needs the loaded apps
