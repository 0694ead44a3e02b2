"""The commands of the cases: one for each way in which a message may be held up."""

from djqueue import Batch, Concurrency, Debounce, Retry, Throttle, Unique, crontab, periodic_command, queue_command


@queue_command
def note(text=""):
    pass


@queue_command(shard=lambda account, **_: account, max_run=1, retry_on=[ConnectionError], backoff=600, max_attempts=5)
def transfer(account, fail=False):
    """In order, an account at a time."""
    if fail:
        raise ConnectionError(f"{account} does not answer")


@queue_command(retry_on=[ConnectionError], backoff=600, max_attempts=5)
def call_customer(number):
    raise ConnectionError(f"{number} does not answer")


@queue_command(shard=lambda account: account, max_run=1)
def wait_for_stock(account):
    raise Retry("no courier", after=600)


@queue_command(throttle=Throttle(1, 3600))
def report(number):
    pass


@queue_command(concurrency=Concurrency(1))
def import_rows(number):
    pass


@queue_command(throttle=Throttle(1, 3600), shard=lambda account: account)
def sync(account):
    """The shards share the rate of the command."""


@queue_command(batch=Batch(10, min_size=5, timeout=600))
def gather(items):
    pass


@queue_command(unique=Unique())
def rebuild(number):
    pass


@queue_command(debounce=Debounce(600))
def index(page):
    pass


@queue_command(ttl=0.001)
def greet(name):
    pass


@periodic_command(crontab(hour=2, minute=0))
def nightly():
    pass


@queue_command
def break_down(text="out of paint"):
    raise ValueError(text)


ALL = (
    *(note, transfer, call_customer, wait_for_stock, report, import_rows, sync),
    *(gather, rebuild, index, greet, nightly, break_down),
)
