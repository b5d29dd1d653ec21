"""Every address of Lethe. Pages are closed by default (LoginRequiredMiddleware); each view asks for its permission."""

from django.urls import path

from console.views import account, errors, help, overview

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.server_error

# The frame: signing in, the own account, finding things.
shell = [
    path("sign-in", account.sign_in, name="sign-in"),
    path("sign-out", account.sign_out, name="sign-out"),
    path("account", account.account, name="account"),
    path("account/password", account.change_password, name="change-password"),
    path("tenant/switch", account.switch_tenant, name="switch-tenant"),
    path("find", account.palette, name="palette"),
    path("help", help.help_page, name="help"),
]

operate = [
    path("", overview.overview, name="overview"),
]

build = []

govern = []

settings = []

api = []

urlpatterns = [*shell, *operate, *build, *govern, *settings, *api]
