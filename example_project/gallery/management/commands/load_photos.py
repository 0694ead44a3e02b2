"""``manage.py load_photos DIR``: put a folder of pictures into the gallery."""

from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.files import File
from django.core.management.base import BaseCommand, CommandError

from gallery import albums
from gallery.forms import title_of
from gallery.pictures import is_picture


class Command(BaseCommand):
    help = "Puts the pictures of a folder, and of the folders in it, into the gallery."

    def add_arguments(self, parser):
        parser.add_argument("folder", type=Path)
        parser.add_argument("--owner", help="the name of the user they will belong to (default: the first one)")

    def handle(self, *, folder: Path, owner: str | None, **options):
        if not folder.is_dir():
            raise CommandError(f"{folder} is not a folder.", returncode=2)
        user, loaded = self._user(owner), 0
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            loaded += self._load(path, path.relative_to(folder), user)
        self.stdout.write(f"Loaded {loaded} pictures.")

    def _user(self, name: str | None):
        users = get_user_model().objects.order_by("pk")
        user = (users.filter(username=name) if name else users).first()
        if user is None:
            raise CommandError(f"There is no user {name or ''}: make one with createsuperuser.", returncode=2)
        return user

    def _load(self, path: Path, name: Path, user) -> bool:
        if not is_picture(path):
            self.stdout.write(f"Skipped {name}: not a picture.")
            return False
        with path.open("rb") as file:
            albums.add_photo(user, title_of(path.name), File(file, path.name))
        self.stdout.write(f"Loaded {name}.")
        return True
