"""The form of a provider, and the table of its models."""

from django import forms
from django.forms import formset_factory
from django.utils.translation import gettext_lazy as _

from agents.models import Provider


class ProviderForm(forms.Form):
    """`key` is write-only: what is stored never comes back to the page."""

    name = forms.CharField(label=_("Name"), max_length=64, help_text=_("Definitions call the provider by it."), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    kind = forms.ChoiceField(label=_("Kind"), choices=Provider.Kind.choices)
    base_url = forms.URLField(label=_("Address"), max_length=500, required=False, assume_scheme="https", help_text=_("Only for an address of your own: a gateway, or a server that speaks the OpenAI protocol."), widget=forms.URLInput(attrs={"placeholder": "https://models.example.com/v1", "autocomplete": "off"}))
    api = forms.ChoiceField(label=_("Protocol"), choices=[("responses", _("Responses")), ("chat", _("Chat completions"))], required=False, help_text=_("For the kind OpenAI."))
    key = forms.CharField(label=_("API key"), max_length=2000, required=False, strip=True, widget=forms.PasswordInput(attrs={"autocomplete": "off"}))
    key_env = forms.CharField(label=_("Or the name of an environment variable"), max_length=100, required=False, help_text=_("The key then never enters the database."), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "OPENAI_API_KEY"}))
    forget_key = forms.BooleanField(label=_("Forget the stored key"), required=False)
    search_price = forms.DecimalField(label=_("Price of 1,000 web searches"), required=False, min_value=0, max_digits=14, decimal_places=6, help_text=_("US dollars, for the provider's own web search. Left empty, the list price applies where one is known."))
    max_concurrency = forms.IntegerField(label=_("Calls at a time"), required=False, min_value=1, max_value=10_000, help_text=_("Left empty, nothing limits them."))
    is_disabled = forms.BooleanField(label=_("Disabled"), required=False, help_text=_("No agent may call it until this is taken back."))

    def __init__(self, *args, provider=None, **kwargs):
        super().__init__(*args, **kwargs)
        if provider and provider.key_enc:
            self.fields["key"].help_text = _("A key ending in %s is stored. Leave this empty to keep it.") % provider.key_hint
        else:
            self.fields["key"].help_text = _("Stored encrypted, and never shown again.")
            del self.fields["forget_key"]
        if provider is None:
            del self.fields["is_disabled"]
        else:
            # Definitions refer to the name, and the kind decides what its models mean: both stay.
            del self.fields["name"], self.fields["kind"]


class ModelForm(forms.Form):
    """One model: what it is called, what fits into it, what a million tokens cost in US dollars."""

    name = forms.CharField(label=_("Model"), max_length=200, required=False, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    context_window = forms.IntegerField(label=_("Context window"), required=False, min_value=1)
    max_output_tokens = forms.IntegerField(label=_("Longest output"), required=False, min_value=1)
    input_price = forms.DecimalField(label=_("Input"), required=False, min_value=0, max_digits=14, decimal_places=6)
    cached_input_price = forms.DecimalField(label=_("Cached input"), required=False, min_value=0, max_digits=14, decimal_places=6)
    output_price = forms.DecimalField(label=_("Output"), required=False, min_value=0, max_digits=14, decimal_places=6)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            # The table's heads stand above all rows; each control still needs a name of its own.
            field.widget.attrs |= {"aria-label": field.label, "class": "input", "step": "any"}
        del self.fields["name"].widget.attrs["step"]

    def clean(self):
        data = super().clean()
        if not data.get("name") and any(value is not None for name, value in data.items() if name not in ("name", "DELETE")):
            self.add_error("name", _("Name the model."))
        return data

    def entry(self) -> dict | None:
        """The model as the provider keeps it; None for an empty row or one to remove."""
        data = self.cleaned_data
        if not data.get("name") or data.get("DELETE"):
            return None
        prices = ("input_price", "cached_input_price", "output_price")
        return {"name": data["name"]} | {
            name: str(data[name]) if name in prices else data[name]
            for name in ("context_window", "max_output_tokens", *prices)
            if data.get(name) is not None
        }


ModelFormSet = formset_factory(ModelForm, extra=2, can_delete=True, max_num=500, absolute_max=520)


class EgressForm(forms.Form):
    hosts = forms.CharField(label=_("Hosts"), required=False, max_length=20_000, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "placeholder": "api.openai.com"}), help_text=_("One a line. Left empty, every public host may be reached; addresses inside your network never."))


class UtilityForm(forms.Form):
    """Which providers can be chosen is the domain's to judge: it says why one cannot."""

    provider = forms.CharField(label=_("Provider"), max_length=64, widget=forms.Select())
    model = forms.CharField(label=_("Model"), max_length=200, help_text=_("Its name exactly as the provider spells it."), widget=forms.TextInput(attrs={"list": "models", "autocomplete": "off", "spellcheck": "false"}))

    def __init__(self, *args, providers, **kwargs):
        super().__init__(*args, **kwargs)
        usable = [(row.name, row.name) for row in providers if not row.is_disabled]
        self.fields["provider"].widget.choices = [("", _("Choose one")), *usable]


def entries(formset) -> list[dict]:
    return [entry for form in formset.forms if (entry := form.entry())]
