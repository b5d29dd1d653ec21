from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions"
    # `sessions` is the label of django.contrib.sessions; two apps cannot share one.
    label = "agent_sessions"
    verbose_name = "Sessions"

    def ready(self):
        from sessions import categories, dependents  # noqa: F401, PLC0415 -- registration needs the loaded models
