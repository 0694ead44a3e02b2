"""The forms of the site."""

from pathlib import Path

from django import forms
from django.core.validators import FileExtensionValidator

from gallery.models import Comment
from gallery.pictures import EXTENSIONS

LARGEST = 40 * 2**20


class PhotoForm(forms.Form):
    """A picture by the name of its file. Whether it is one is found out in the queue, not while its owner waits."""

    title = forms.CharField(max_length=200, required=False, help_text="By default the name of the file.")
    file = forms.FileField(
        label="Picture",
        validators=[FileExtensionValidator(EXTENSIONS)],
        widget=forms.ClearableFileInput(attrs={"accept": ",".join(f".{extension}" for extension in EXTENSIONS)}),
    )

    def clean_file(self):
        file = self.cleaned_data["file"]
        if file.size > LARGEST:
            raise forms.ValidationError(f"This file has more than {LARGEST // 2**20} MiB.")
        return file

    def clean(self):
        data = super().clean()
        if "file" in data and not data.get("title"):
            data["title"] = title_of(data["file"].name)
        return data


class CommentForm(forms.ModelForm):
    class Meta:
        model = Comment
        fields = ["author", "text"]
        labels = {"author": "Your name", "text": "Comment"}
        widgets = {"text": forms.Textarea(attrs={"rows": 3})}


def title_of(name: str) -> str:
    """A title from the name of a file."""
    return Path(name).stem.replace("_", " ").replace("-", " ").strip().capitalize()[:200] or "Untitled"
