"""Notifications for systemd, by the protocol of sd_notify: ready, stopping, a line of status, and the watchdog."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress


class Notifier:
    """Sends notifications to the service manager that started this process."""

    def __init__(self, address: str, watchdog: float | None = None):
        self.watchdog = watchdog
        """The seconds within which the manager wants to hear that the process is alive; None if it does not."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    @classmethod
    def of_this_process(cls, environment: MutableMapping[str, str] = os.environ) -> Notifier | None:
        """Take it from the environment, so that no child notifies too; None if no manager wants to hear anything."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        if not address.startswith(("/", "@")):
            return None
        is_ours = microseconds.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 1e6 if is_ours else None)

    def send(self, *assignments: str) -> None:
        """Send assignments such as ``READY=1``. What the manager cannot take is lost."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(assignments).encode(), self._address)
