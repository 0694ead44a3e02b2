"""Celery on Redis, without results; with RACE_ACKS_LATE a task is acknowledged when it has ended."""

import os

from celery import Celery

from tests.benchmarks import ledger
from tests.benchmarks.race.peers import TEXT, URL

app = Celery("race", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late="RACE_ACKS_LATE" in os.environ,
    worker_prefetch_multiplier=64,  # its guide: 50 to 150 for many short tasks
    broker_connection_retry_on_startup=True,
)


@app.task
def noted(number, text):
    ledger.note(number)


@app.task
def doze(number):
    ledger.doze(number)


def send(numbers):
    for number in numbers:
        noted.delay(number, TEXT)


def send_slow(numbers):
    for number in numbers:
        doze.delay(number)
