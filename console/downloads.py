"""Files as downloads: what somebody wrote is never shown as a page of ours."""

import io
import zipfile

from sessions.domain import workspace
from sessions.models import Session


def workspace_zip(session: Session) -> bytes:
    """All files of a session, each under its path and with the time of its last change. A workspace is small by its limits."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for listed in workspace.files(session=session):
            file = workspace.read(session=session, path=listed.path)
            entry = zipfile.ZipInfo(file.path, date_time=file.updated_at.timetuple()[:6])
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
            archive.writestr(entry, file.content.encode())
    return packed.getvalue()
