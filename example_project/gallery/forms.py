"""The forms of the site."""

from pathlib import Path

from django import forms
from django.core.files import File
from django.core.validators import FileExtensionValidator

from gallery.models import Comment
from gallery.pictures import EXTENSIONS

LARGEST = 40 * 2**20


def validate_size(file: File) -> None:
    if file.size > LARGEST:
        raise forms.ValidationError(f"{file.name} has more than {LARGEST // 2**20} MiB.")


class PicturesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class PicturesField(forms.FileField):
    """Several files, each checked on its own."""

    def clean(self, data, initial=None) -> list[File]:
        return [super(PicturesField, self).clean(file, initial) for file in data or [None]]


class PhotoForm(forms.Form):
    """One or several files. Only their names are checked here: whether they are pictures shows in the queue."""

    title = forms.CharField(
        max_length=200, required=False, help_text="Of one picture; otherwise the names of the files."
    )
    file = PicturesField(
        label="Pictures",
        help_text="One or several.",
        validators=[FileExtensionValidator(EXTENSIONS), validate_size],
        widget=PicturesInput(attrs={"accept": ",".join(f".{extension}" for extension in EXTENSIONS)}),
    )

    def pictures(self) -> list[tuple[str, File]]:
        """The title and the file of each. The title that was typed in counts if there is one file only."""
        files = self.cleaned_data["file"]
        title = self.cleaned_data["title"] if len(files) == 1 else ""
        return [(title or title_of(file.name), file) for file in files]


class CommentForm(forms.ModelForm):
    class Meta:
        model = Comment
        fields = ["author", "text"]
        labels = {"author": "Your name", "text": "Comment"}
        widgets = {"text": forms.Textarea(attrs={"rows": 3})}


def title_of(name: str) -> str:
    """A title from the name of a file."""
    return Path(name).stem.replace("_", " ").replace("-", " ").strip().capitalize()[:200] or "Untitled"
