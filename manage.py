#!/usr/bin/env python
"""Django's command line for Lethe."""

import os
import sys


def main():
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 -- needs the settings

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
