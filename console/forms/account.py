"""Forms of the member's own account."""

from django import forms
from django.contrib.auth import authenticate, password_validation
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console import attempts
from governance.models import Member


class SignInForm(forms.Form):
    """After `is_valid`, `member` is who signed in. `is_refused`: wrong; `is_limited`: not even tried, too many failed."""

    username = forms.CharField(max_length=150, label=_("Username"), widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none", "spellcheck": "false"}))
    password = forms.CharField(max_length=1000, strip=False, label=_("Password"), widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}))

    def __init__(self, *args, request, **kwargs):
        super().__init__(*args, **kwargs)
        self.request, self.member = request, None
        self.is_limited = self.is_refused = False

    def clean(self):
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not username or not password:
            return
        address = self.request.META.get("REMOTE_ADDR", "")
        wait = attempts.wait_for(username=username, address=address)
        if wait:
            self.is_limited = True
            minutes = -(-wait // 60)
            raise forms.ValidationError(
                ngettext("Too many attempts failed. Try again in %d minute.", "Too many attempts failed. Try again in %d minutes.", minutes) % minutes
            )
        self.member = authenticate(self.request, username=username, password=password)
        if self.member is None:
            attempts.failed(username=username, address=address)
            self.is_refused = True
            # One sentence for both, so that nobody learns which usernames exist.
            raise forms.ValidationError(_("The username or the password is not right."))
        attempts.succeeded(username=username, address=address)


class ProveForm(SignInForm):
    """The password of the member who is signed in, once more, with the same limit on attempts."""

    username = None

    def clean(self):
        self.cleaned_data["username"] = self.request.user.username
        super().clean()


class PasswordForm(forms.Form):
    old = forms.CharField(strip=False, label=_("Current password"), widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}))
    new = forms.CharField(strip=False, label=_("New password"), widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}), help_text=_("At least 10 characters. A few words in a row are easy to remember and hard to guess."))
    again = forms.CharField(strip=False, label=_("New password again"), widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}))

    def __init__(self, *args, member, **kwargs):
        super().__init__(*args, **kwargs)
        self.member = member
        if member.must_change_password:
            self.fields["old"].label = _("One-time password")

    def clean_old(self):
        old = self.cleaned_data["old"]
        if not self.member.check_password(old):
            raise forms.ValidationError(_("That is not your current password."))
        return old

    def clean_new(self):
        new = self.cleaned_data["new"]
        password_validation.validate_password(new, self.member)
        if self.cleaned_data.get("old") == new:
            raise forms.ValidationError(_("Choose another one than before."))
        return new

    def clean_again(self):
        again = self.cleaned_data["again"]
        if "new" in self.cleaned_data and again != self.cleaned_data["new"]:
            raise forms.ValidationError(_("The two do not match."))
        return again


class ThemeForm(forms.Form):
    theme = forms.ChoiceField(
        label=_("Theme"),
        choices=[(Member.Theme.SYSTEM, _("As the system")), (Member.Theme.LIGHT, _("Light")), (Member.Theme.DARK, _("Dark"))],
        widget=forms.RadioSelect,
    )
