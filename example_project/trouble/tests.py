"""Trouble that is made, and what the dashboard has to find then."""

import tempfile
from pathlib import Path
from unittest import mock

from django.contrib.auth.models import User
from django.test import TransactionTestCase, override_settings

from djqueue import operations, queues
from djqueue.testing import memory_queues, run_due
from trouble import commands, making


class TroubleTests(TransactionTestCase):
    def setUp(self):
        self.enterContext(override_settings(DATA_DIR=Path(self.enterContext(tempfile.TemporaryDirectory()))))
        self.enterContext(memory_queues())
        self.enterContext(mock.patch.object(commands, "sleep"))

    def reasons(self) -> set[str]:
        waiting = [record.entry.id for state in ("ready", "delayed") for record in queues["default"].peek(state)]
        return {reason.kind for id in waiting for reason in operations.explain(id).reasons}

    def failures(self) -> list[str]:
        return sorted(record.entry.command.rpartition(".")[2] for record in queues["default"].failed.peek("ready"))

    def test_there_is_some_of_each_kind(self):
        making.make("ada")
        run_due(until=1)
        self.assertEqual(self.failures(), 5 * ["send_parcel"] + 2 * ["write_bill"])
        self.assertLessEqual({"command_paused", "lane_retry", "lane_throttled"}, self.reasons())
        self.assertEqual([(one.name, one.by) for one in operations.pauses()], [(commands.send_newsletter.name, "ada")])

    def test_it_ends(self):
        making.make("ada")
        run_due(until=4)
        making.end("ada")
        queues["default"].requeue([record.entry.id for record in queues["default"].failed.peek("ready")])
        run_due(until=600)
        self.assertEqual(self.failures(), 2 * ["write_bill"])
        self.assertEqual((len(queues["default"]), operations.pauses()), (0, []))

    def test_load(self):
        for number in range(1, 81):
            making.load(number)
        run_due(until=2)
        self.assertEqual(self.failures(), 2 * ["write_bill"])

    def test_the_buttons_are_for_those_who_may_pause(self):
        self.assertRedirects(self.client.post("/trouble/make/"), "/login/?next=/trouble/make/")
        self.assertNotContains(self.client.get("/queues/"), "Make trouble")
        self.client.force_login(User.objects.create_superuser("boss"))
        self.assertContains(self.client.get("/queues/"), "Make trouble")
        self.assertEqual(self.client.get("/trouble/make/").status_code, 405)
        dashboard = self.client.post("/trouble/make/", follow=True)
        self.assertContains(dashboard, "There is trouble now")
        self.assertContains(dashboard, "send_newsletter is paused by boss")
        self.assertContains(self.client.post("/trouble/end/", follow=True), "The services answer again")
        self.assertEqual(operations.pauses(), [])
