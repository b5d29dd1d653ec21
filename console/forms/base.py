"""What the console's forms share."""

from django.core.exceptions import NON_FIELD_ERRORS
from django.forms import Form

from governance.errors import LetheError


def tell(form: Form, error: LetheError, names: dict[str, str] | None = None) -> None:
    """Put a domain error into the form, by field where it names one. `names` maps its paths to the form's fields."""
    told = False
    for path, sentences in error.errors.items():
        name = (names or {}).get(path, path)
        form.add_error(name if name in form.fields else NON_FIELD_ERRORS, sentences)
        told = True
    if not told:
        form.add_error(NON_FIELD_ERRORS, error.detail)
