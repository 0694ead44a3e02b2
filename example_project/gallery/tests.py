"""The tests of the site. Those of the queue itself are elsewhere."""

import io
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from unittest import mock

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
from djqueue.testing import memory_queues, run_due
from gallery import albums, commands, digest
from gallery.models import Comment, Photo, Thumbnail
from gallery.pictures import Unreadable
from gallery.tasks import tell_owner

LATELY = [("make_thumbnail", "failed"), ("make_thumbnail", "done")]
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

    def test_several_at_once(self):
        self.client.force_login(self.owner)
        files = [SimpleUploadedFile(name, picture()) for name in ("green-hills.jpg", "blue_lake.png")]
        self.assertRedirects(self.client.post("/upload/", {"file": files, "title": "Mine"}), "/")
        self.assertEqual({photo.title for photo in Photo.objects.all()}, {"Green hills", "Blue lake"})
        self.assertEqual(waiting("pictures"), ["make_thumbnail"] * 6)
        self.upload(title="Mine")
        self.assertEqual(Photo.objects.first().title, "Mine")

    def test_none_is_refused(self):
        self.client.force_login(self.owner)
        self.assertContains(self.client.post("/upload/", {"title": ""}), "This field is required.")

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
                self.assertContains(self.client.get("/"), 'class="card failed"')
                self.assertFalse((self.folder / "thumbs" / str(photo.pk)).exists())

    def test_once_it_can_be_read_all_is_well(self):
        photo = self.photo(b"not a picture")
        with self.assertRaises(Unreadable):
            self.make(photo)
        photo.refresh_from_db()
        photo.file.save("a.jpg", ContentFile(picture()))
        self.make(photo)
        photo.refresh_from_db()
        self.assertEqual(photo.problem, "")

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
    def test_a_comment_enqueues_a_check_and_that_a_mail(self):
        photo = self.photo()
        answer = self.client.post(photo.get_absolute_url(), {"author": "Ada", "text": "Lovely."})
        self.assertRedirects(answer, photo.get_absolute_url())
        self.assertEqual(waiting("default"), ["check_for_spam"])
        for _ in range(2):  # as after the loss of a worker
            commands.check_for_spam.call(Comment.objects.get())
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

    def test_spam_is_hidden_and_nobody_is_told(self):
        comment = self.comment(SPAM)
        commands.check_for_spam.call(comment)
        self.assertEqual(waiting("default"), [])
        comment.refresh_from_db()
        self.assertEqual(comment.state, Comment.State.SPAM)
        self.assertNotContains(self.client.get(comment.photo.get_absolute_url()), "casino")

    @override_settings(QUEUE_ALWAYS_EAGER=True)
    def test_a_repeated_mail_has_the_same_message_id(self):
        result = tell_owner.enqueue(self.comment().pk)
        [message] = mail.outbox
        self.assertEqual(message.to, ["owner@example.com"])
        self.assertIn("Ada", message.subject)
        self.assertIn(result.id, message.message()["Message-ID"])

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
        [command] = [one for one in registry.periodic() if one.name == "gallery.commands.write_digest"]
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

    def test_what_happened_lately(self):
        with memory_queues():
            commands.make_thumbnail(self.photo(), "small")
            commands.make_thumbnail(self.photo(b"not a picture"), "small")
            run_due()
            state = self.client.get("/queues/state/").json()["activity"]
        self.assertEqual(state["per_minute"], 2)
        self.assertEqual([(line["command"], line["kind"]) for line in state["recent"]], LATELY)
        self.assertEqual(sum(bar["failed"] for bar in state["bars"]), 1)

    def test_failed_messages(self):
        with memory_queues():
            photo = self.photo(b"not a picture")
            id = commands.make_thumbnail(photo, "small").id
            run_due()
            page = self.client.get("/queues/failed/")
            self.assertContains(page, "Unreadable: photos/")
            self.assertContains(self.client.get(photo.get_absolute_url()), f"/queues/failed/#{id}")
            self.assertNotContains(page, "Traceback")
            retry = f"/queues/failed/pictures/{id}/retry/"
            self.assertEqual(self.client.post(retry).status_code, 302)
            self.assertEqual(len(queues["pictures"].failed), 1, "only the staff may retry")
            self.client.force_login(User.objects.create_superuser("boss"))
            page = self.client.get("/queues/failed/")
            self.assertContains(page, "Traceback")
            self.assertContains(page, "size=&#x27;small&#x27;")
            self.assertRedirects(self.client.post(retry), "/queues/failed/")
            self.assertEqual((len(queues["pictures"].failed), waiting("pictures")), (0, ["make_thumbnail"]))
            self.assertEqual(self.client.post(retry).status_code, 404)

    def test_errors_have_pages(self):
        self.assertContains(self.client.get("/nothing/"), "There is no such page", status_code=404)
        self.client.raise_request_exception = False
        with mock.patch("gallery.reports.gallery", side_effect=ZeroDivisionError):
            self.assertContains(self.client.get("/"), "Something went wrong", status_code=500)

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
