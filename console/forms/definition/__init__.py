"""The form of a definition: every setting as a control, and back."""

from console.forms.definition.form import DefinitionForm
