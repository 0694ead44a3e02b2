"""The tests of the site. Those of the queue itself are elsewhere."""

import io
import shutil
import tempfile
from datetime import datetime
from pathlib import Path

from django.contrib.auth.models import User
from django.core import mail
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import TestCase, override_settings
from PIL import Image

from djqueue import queues
from djqueue.registry import registry
from gallery import albums, commands, digest
from gallery.models import Comment, Photo, Thumbnail
from gallery.pictures import Unreadable

SPAM = "Cheap casino: https://a.example https://b.example"


def picture(size=(900, 600), kind="JPEG", mode="RGB", **options) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


def waiting(alias: str) -> list[str]:
    """The commands that wait in a queue."""
    return sorted(record.entry.command.rpartition(".")[2] for record in queues[alias].peek("ready"))


class SiteTestCase(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.owner = User.objects.create_user("owner", "owner@example.com", "secret")

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.enterContext(override_settings(MEDIA_ROOT=self.folder, DIGEST_DIR=self.folder / "digests"))

    def photo(self, data: bytes | None = None, name: str = "a.jpg") -> Photo:
        return Photo.objects.create(
            owner=self.owner, title="A", file=ContentFile(picture() if data is None else data, name)
        )

    def comment(self, text: str = "Lovely.") -> Comment:
        return Comment.objects.create(photo=self.photo(), author="Ada", text=text)


class UploadTests(SiteTestCase):
    def upload(self, name="green-hills.jpg", **fields):
        return self.client.post("/upload/", {"file": SimpleUploadedFile(name, picture()), **fields})

    def test_visitors_must_log_in(self):
        self.assertRedirects(self.upload(), "/login/?next=/upload/")
        self.assertFalse(Photo.objects.exists())

    def test_an_upload_enqueues_a_thumbnail_of_each_size(self):
        self.client.force_login(self.owner)
        self.assertRedirects(self.upload(), "/")
        self.assertEqual(waiting("pictures"), ["make_thumbnail"] * 3)
        self.assertEqual(waiting("default"), [])
        self.assertEqual(Photo.objects.get().title, "Green hills")

    def test_other_files_are_refused(self):
        self.client.force_login(self.owner)
        self.assertContains(self.upload("page.svg"), "not allowed")
        self.assertEqual(waiting("pictures"), [])

    def test_a_photo_that_is_not_saved_enqueues_nothing(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            albums.add_photo(self.owner, "A", ContentFile(picture(), "a.jpg"))
            raise ZeroDivisionError
        self.assertEqual(waiting("pictures"), [])


class ThumbnailTests(SiteTestCase):
    def make(self, photo: Photo, size: str = "small") -> Thumbnail:
        commands.make_thumbnail.call(photo, size)
        return Thumbnail.objects.get(photo=photo, size=size)

    def test_its_file_is_under_thumbs(self):
        photo = self.photo()
        thumbnail = self.make(photo)
        self.assertEqual(thumbnail.path, self.folder / f"thumbs/{photo.pk}/small.jpg")
        with Image.open(thumbnail.path) as image:
            self.assertEqual((image.format, image.size), ("JPEG", (320, 213)))
        self.assertEqual((thumbnail.width, thumbnail.height), (320, 213))

    def test_twice_is_once(self):
        photo = self.photo()
        first = self.make(photo).path.read_bytes()
        self.assertEqual(self.make(photo).path.read_bytes(), first)
        self.assertEqual([file.name for file in (self.folder / "thumbs" / str(photo.pk)).iterdir()], ["small.jpg"])

    def test_cameras_that_were_turned(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        self.assertEqual(self.make(self.photo(picture(exif=exif))).height, 320)

    def test_no_picture_grows(self):
        self.assertEqual(self.make(self.photo(picture((50, 40))), "large").width, 50)

    def test_many_formats(self):
        for kind, mode in [
            ("PNG", "RGBA"),
            ("PNG", "I;16"),
            ("GIF", "P"),
            ("WEBP", "RGBA"),
            ("TIFF", "CMYK"),
            ("BMP", "1"),
        ]:
            with self.subTest(kind=kind, mode=mode):
                self.assertEqual(self.make(self.photo(picture(kind=kind, mode=mode), "a.x")).width, 320)

    def test_white_shines_through(self):
        thumbnail = self.make(self.photo(picture(kind="PNG", mode="RGBA"), "a.png"))
        with Image.open(thumbnail.path) as image:
            self.assertEqual(image.getpixel((5, 5)), (255, 255, 255))

    def test_a_broken_picture_is_an_error_and_its_page_says_so(self):
        for data in (b"", b"not a picture", picture()[:500]):
            with self.subTest(data=data[:15]):
                photo = self.photo(data)
                with self.assertRaises(Unreadable):
                    self.make(photo)
                self.assertContains(self.client.get(photo.get_absolute_url()), "not a picture")
                self.assertFalse((self.folder / "thumbs" / str(photo.pk)).exists())

    def test_pages_show_what_is_there(self):
        photo = self.photo()
        state = self.client.get("/state/").json()
        self.assertEqual((state["waiting"], state["photos"][0]["status"]), (True, "0 of 3 thumbnails"))
        for size in ("small", "medium", "large"):
            self.make(photo, size)
        card = self.client.get("/state/").json()["photos"][0]
        self.assertEqual((card["waiting"], card["status"]), (False, ""))
        self.assertContains(self.client.get("/"), card["thumbnail"])
        self.assertEqual(len(self.client.get(f"/photos/{photo.pk}/state/").json()["sizes"]), 3)


class CommentTests(SiteTestCase):
    def test_a_comment_enqueues_a_check_and_a_mail(self):
        photo = self.photo()
        answer = self.client.post(photo.get_absolute_url(), {"author": "Ada", "text": "Lovely."})
        self.assertRedirects(answer, photo.get_absolute_url())
        self.assertEqual(waiting("default"), ["check_for_spam", "tell_owner"])

    def test_until_the_check_only_its_author_sees_it(self):
        photo = self.photo()
        self.client.post(photo.get_absolute_url(), {"author": "Ada", "text": "Lovely."})
        path = photo.get_absolute_url() + "state/"
        mine, others = self.client.get(path).json(), self.client_class().get(path).json()
        self.assertEqual([comment["state"] for comment in mine["comments"]], ["waiting"])
        self.assertEqual(others["comments"], [])
        commands.check_for_spam.call(Comment.objects.get())
        self.assertEqual([c["state"] for c in self.client_class().get(path).json()["comments"]], ["visible"])

    def test_spam_is_hidden(self):
        comment = self.comment(SPAM)
        commands.check_for_spam.call(comment)
        comment.refresh_from_db()
        self.assertEqual(comment.state, Comment.State.SPAM)
        self.assertNotContains(self.client.get(comment.photo.get_absolute_url()), "casino")

    @override_settings(QUEUE_ALWAYS_EAGER=True)
    def test_a_repeated_mail_has_the_same_message_id(self):
        handle = commands.tell_owner(self.comment())
        [message] = mail.outbox
        self.assertEqual(message.to, ["owner@example.com"])
        self.assertIn("Ada", message.subject)
        self.assertIn(handle.id, message.message()["Message-ID"])

    def test_markup_stays_text(self):
        comment = self.comment("<script>alert(1)</script>")
        commands.check_for_spam.call(comment)
        self.assertContains(self.client.get(comment.photo.get_absolute_url()), "&lt;script&gt;")


class DigestTests(SiteTestCase):
    def test_it_tells_of_today(self):
        commands.check_for_spam.call(self.comment())
        commands.check_for_spam.call(self.comment(SPAM))
        commands.write_digest()  # a periodic command that is called runs at once
        self.assertIn("New photos: 2", digest.latest())
        self.assertIn("1 shown, 1 taken for spam", digest.latest())

    def test_it_is_due_every_minute(self):
        [command] = registry.periodic()
        self.assertEqual(command.name, "gallery.commands.write_digest")
        self.assertTrue(command.validate_datetime(datetime(2030, 5, 17, 3, 44)))


class LoadPhotosTests(SiteTestCase):
    def test_a_folder_with_folders(self):
        source = self.folder / "source"
        (source / "deeper").mkdir(parents=True)
        (source / "a.jpg").write_bytes(picture())
        (source / "deeper" / "B-b.PNG").write_bytes(picture(kind="PNG"))
        (source / "deeper" / "notes.txt").write_text("no picture")
        (source / "fake.jpg").write_text("no picture")
        output = io.StringIO()
        call_command("load_photos", source, stdout=output)
        self.assertEqual(set(Photo.objects.values_list("title", flat=True)), {"A", "B b"})
        self.assertIn("Skipped deeper/notes.txt", output.getvalue())
        self.assertIn("Skipped fake.jpg", output.getvalue())
        self.assertEqual(waiting("pictures"), ["make_thumbnail"] * 6)

    def test_what_is_missing_is_said(self):
        with self.assertRaisesMessage(CommandError, "not a folder"):
            call_command("load_photos", self.folder / "nowhere")
        with self.assertRaisesMessage(CommandError, "no user nobody"):
            call_command("load_photos", self.folder, owner="nobody")


class PageTests(SiteTestCase):
    def test_counts_of_the_queues(self):
        albums.add_photo(self.owner, "A", ContentFile(picture(), "a.jpg"))
        rows = {row["alias"]: row for row in self.client.get("/queues/state/").json()["queues"]}
        self.assertEqual((rows["pictures"]["ready"], rows["default"]["ready"]), (3, 0))
        self.assertContains(self.client.get("/queues/"), "pictures")

    def test_what_was_uploaded_is_not_served(self):
        photo = self.photo()
        for path in (f"/thumbs/../{photo.file.name}", f"/media/{photo.file.name}", f"/{photo.file.name}"):
            self.assertIn(self.client.get(path).status_code, (400, 404), path)

    def test_nothing_stands_inside_the_pages(self):
        self.client.force_login(self.owner)
        for path in ("/", "/upload/", "/queues/", "/login/", self.photo().get_absolute_url()):
            answer = self.client.get(path, follow=True)
            self.assertContains(answer, 'src="/static/gallery/gallery.js" defer></script>')
            self.assertNotRegex(answer.text.replace(" defer></script>", ""), "<style|style=|onclick=|</script>")
            self.assertIn("default-src 'self'", answer.headers["Content-Security-Policy"])
        self.assertEqual(self.client.get("/health/").status_code, 200)
