from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents"
    verbose_name = "Agents"

    def ready(self):
        from agents import builtin_tools, categories  # noqa: F401, PLC0415 -- registration needs the loaded models
