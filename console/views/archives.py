"""Archives of exports: download a part, hand out addresses that work once, and what such an address opens."""

from django.contrib.auth.decorators import login_not_required
from django.http import StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import request_for
from console.api.views.governance import archive_name, archive_of, link_url, pieces
from governance.domain import exports
from governance.errors import LetheError, NotFound


@require_GET
@never_cache
def archive(request, ref, part=1):
    """One part, decrypted while it is sent. The download is told before its first byte."""
    export = archive_of(request_for(request, ref, "subject.export"))
    return _stream(export, part, exports.open_archive(export=export, part=part, by=request.actor))


@require_POST
@never_cache
def links(request, ref):
    """Shown this once: only their hashes are kept."""
    found = request_for(request, ref, "subject.export")
    export = archive_of(found)
    tokens = exports.make_links(export=export, by=request.actor)
    addresses = [link_url(request, token) for token in tokens]
    return render(request, "governance/archive_links.html", {"item": found, "export": export, "addresses": addresses})


# The token is the permission, so a form from elsewhere can do no more than whoever has it.
@csrf_exempt
@login_not_required
@never_cache
@require_http_methods(["GET", "POST"])
def link(request, token):
    """For the person themselves, without an account. Looking uses nothing up, so that a mail scanner cannot; posting does."""
    try:
        if request.method == "POST":
            return _stream(*exports.open_link(token=token))
        export, part = exports.find_link(token=token)
    except LetheError as error:
        status = 404 if isinstance(error, NotFound) else 409
        return render(request, "governance/archive_link.html", {"problem": error.detail}, status=status)
    context = {"export": export, "part": part, "size": export.parts[part - 1]["size"], "controller": export.tenant.name}
    return render(request, "governance/archive_link.html", context)


def _stream(export, part, file):
    response = StreamingHttpResponse(pieces(file), content_type="application/zip")
    response["Content-Disposition"] = f'attachment; filename="{archive_name(export.request.ref, part, export)}"'
    response["Referrer-Policy"] = "no-referrer"
    return response
