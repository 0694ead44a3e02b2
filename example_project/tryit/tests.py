"""The page “Try it”: what its buttons enqueue, and what its script is told."""

from unittest import mock

from django.test import Client, TransactionTestCase

from activity.models import Event
from djqueue import queues
from djqueue.testing import memory_queues, run_due
from tryit import commands, records
from tryit.cards import CARDS
from tryit.models import Call, Customer, Reading
from tryit.source import coloured

JSON = {"headers": {"accept": "application/json"}}


class TryItTestCase(TransactionTestCase):
    """As on the site, a call is sent at once, in no transaction."""

    def setUp(self):
        self.enterContext(memory_queues())
        self.enterContext(mock.patch.object(commands, "sleep"))

    def press(self, name: str, action: str = "press", client: Client | None = None) -> dict:
        return (client or self.client).post(f"/try/{name}/{action}/", **JSON).json()["cards"][name]

    def card(self, name: str) -> dict:
        return self.client.get("/try/state/").json()["cards"][name]

    def outcomes(self, name: str) -> list[list[str]]:
        return [[attempt["outcome"] for attempt in call["attempts"]] for call in self.card(name)["calls"]]


class PageTests(TryItTestCase):
    def test_it_shows_each_command_with_its_source(self):
        page = self.client.get("/try/").text
        for card in CARDS:
            self.assertInHTML(card.title, page)
            self.assertIn(f"def</span> {card.name}(", page)
        self.assertNotRegex(page, "<style|style=|onclick=|<script>")
        self.assertEqual(len(self.client.cookies), 1, "csrftoken: who only looks gets no session")

    def test_source_stays_source(self):
        text = "@shout(sure=True)\ndef f(a):\n    return '<b>' if a else 1  # yes\n"
        self.assertEqual(
            coloured(text),
            '<span class="decorator">@</span><span class="decorator">shout</span>'
            '(sure=<span class="keyword">True</span>)\n'
            '<span class="keyword">def</span> f(a):\n    <span class="keyword">return</span> '
            '<span class="string">&#x27;&lt;b&gt;&#x27;</span> <span class="keyword">if</span> a '
            '<span class="keyword">else</span> 1  # yes\n',
        )

    def test_buttons_work_without_the_script_too(self):
        self.assertRedirects(self.client.post("/try/book/press/"), "/try/#book", fetch_redirect_response=False)
        self.assertEqual(len(self.card("book")["calls"]), 15)

    def test_what_is_no_button(self):
        for path in ("book/mend", "tidy_up/press", "nothing/press"):
            self.assertEqual(self.client.post(f"/try/{path}/").status_code, 404, path)
        self.assertEqual(self.client.get("/try/book/press/").status_code, 405)
        self.assertEqual(Client(enforce_csrf_checks=True).post("/try/book/press/").status_code, 403)
        self.assertFalse(Call.objects.exists())

    def test_visitors_see_their_own_calls_only(self):
        self.press("rebuild_page")
        self.assertEqual(len(self.press("rebuild_page", client=Client())["calls"]), 1)
        self.assertEqual(len(self.card("rebuild_page")["calls"]), 1)
        self.assertEqual(Client().get("/try/state/").json()["busy"], False)

    def test_who_presses_too_often_must_wait(self):
        with mock.patch.object(records, "MOST_OF_ONE", 30):
            self.press("book"), self.press("book")
            answer = self.client.post("/try/book/press/", **JSON)
        self.assertEqual((answer.status_code, answer.text), (429, "That was a lot at once: wait half a minute."))
        self.assertEqual(Call.objects.count(), 30)


class CardTests(TryItTestCase):
    def test_debounce(self):
        for _ in range(5):
            card = self.press("rebuild_page")
        self.assertEqual([call["put"] for call in card["calls"]], [True, True, False, False, False])
        self.assertTrue(card["busy"])
        run_due(until=10)
        self.assertEqual(self.outcomes("rebuild_page"), [["done"], ["done"], [], [], []])
        self.assertFalse(self.card("rebuild_page")["busy"])

    def test_throttle(self):
        self.press("ask_supplier")
        run_due(until=4)
        self.assertEqual(self.outcomes("ask_supplier"), 3 * [["done"]] + 9 * [[]])
        run_due(until=30)
        self.assertEqual(self.outcomes("ask_supplier"), 12 * [["done"]])

    def test_shards(self):
        self.press("book")
        labels = [(run.args[1], run.args[2]) for run in run_due()]
        for account in "ABC":
            self.assertEqual([step for name, step in labels if name == account], [1, 2, 3, 4, 5])
        self.assertEqual(self.outcomes("book"), 15 * [["done"]])

    def test_retries(self):
        self.press("call_bank")
        run_due(until=30)
        [call] = self.card("call_bank")["calls"]
        self.assertEqual([attempt["outcome"] for attempt in call["attempts"]], 3 * ["retried"] + ["done"])
        waits = [round(attempt["next"] - attempt["ended"]) for attempt in call["attempts"][:3]]
        self.assertEqual(waits, [1, 2, 4])

    def test_progress_and_cancel(self):
        self.press("import_rows")
        run_due()
        card = self.card("import_rows")
        self.assertEqual((card["share"], card["status"]), (1, "done"))
        self.press("import_rows"), self.press("import_rows")
        self.assertEqual(len(queues["default"]), 1, "no second one beside it")
        self.assertEqual(self.press("import_rows", "cancel")["status"], "cancelled")
        self.assertEqual(run_due(), [])
        self.assertFalse(self.card("import_rows")["busy"])

    def test_batch(self):
        self.press("store")
        run_due(until=5)
        self.assertEqual(self.card("store")["sizes"], [10, 10, 10, 4])
        self.assertEqual(Reading.objects.count(), 34)

    def test_a_failure_its_reason_and_its_retry(self):
        self.press("send_invoice"), run_due()
        self.press("send_invoice"), run_due()
        card = self.card("send_invoice")
        self.assertEqual((card["failed"], card["busy"]), (True, False))
        self.assertRegex(card["reason"], r"^ValueError: Customer \d+ has no address.$")
        self.assertEqual(len(queues["default"].failed), 1, "the one before it is forgotten")
        self.press("send_invoice", "mend"), run_due()
        self.assertEqual(self.outcomes("send_invoice"), [["failed", "done"]])
        self.assertFalse(self.card("send_invoice")["failed"])

    def test_periodic(self):
        commands.tidy_up.enqueue()
        run_due()
        card = self.card("tidy_up")
        self.assertEqual(len(card["ticks"]), 1)
        self.assertEqual(card["next"] % 30, 0)

    def test_what_is_old_is_forgotten(self):
        self.press("store"), self.press("send_invoice"), run_due(until=5)
        Call.objects.update(at=1), Event.objects.update(at=1)
        self.press("rebuild_page")
        commands.tidy_up()
        self.assertEqual([call.command for call in Call.objects.all()], ["rebuild_page"])
        self.assertFalse(Event.objects.exists())
        self.assertEqual(Customer.objects.count() + Reading.objects.count(), 35, "the visitor is still there")
        Call.objects.update(at=1)
        commands.tidy_up()
        self.assertEqual(Customer.objects.count() + Reading.objects.count(), 0)
