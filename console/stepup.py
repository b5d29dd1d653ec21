"""A fresh look at who sits there: acts that cannot be undone need a password entered no more than five minutes ago."""

from datetime import timedelta

from django.utils import timezone

from governance.errors import Forbidden

LIFE = timedelta(minutes=5)
KEY = "proven_at"


class StepUpRequired(Forbidden):
    """`onward` is where to go on once the password was entered; a page's address, not part of the document."""

    code, title = "step_up_required", "Enter your password again"
    detail = "This cannot be undone, and you entered your password more than five minutes ago. Enter it again, then go on."

    def __init__(self, onward: str = "/"):
        super().__init__()
        self.onward = onward


def prove(request) -> None:
    """The member has just entered their password."""
    request.session[KEY] = timezone.now().timestamp()


def is_fresh(request) -> bool:
    proven = request.session.get(KEY)
    age = timezone.now().timestamp() - proven if isinstance(proven, float | int) else None
    return age is not None and 0 <= age <= LIFE.total_seconds()


def require(request, *, onward: str = "/") -> None:
    """Raise StepUpRequired unless the password was entered within LIFE."""
    if not is_fresh(request):
        raise StepUpRequired(onward)
