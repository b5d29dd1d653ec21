"""Django's PostgreSQL backend, pointed at the embedded server when the first connection is made.

Settings stay free of side effects: commands that need no database start none.
"""

from pathlib import Path

from django.db.backends.postgresql import base

from console import embedded


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self):
        if not self.settings_dict["HOST"]:
            self.settings_dict["HOST"] = embedded.socket_directory(Path(self.settings_dict["DATA_DIR"]))
        return super().get_connection_params()
