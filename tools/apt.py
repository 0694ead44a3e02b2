"""Install the servers of the tests as Debian packages, without letting any of them start."""

import contextlib
import os
import shutil
from pathlib import Path

from steps import Failed, run, say

POLICY = Path("/usr/sbin/policy-rc.d")
REFUSE_ALL = "#!/bin/sh\nexit 101\n"


def ensure(servers):
    """Install what is missing, as root on Debian; elsewhere a missing server fails under CI=true and is said at home.

    `servers` is the module tests.support.servers."""
    wanted = absent(servers)
    if wanted and os.geteuid() == 0 and shutil.which("apt-get"):
        install([servers.KINDS[kind].package for kind in wanted])
    for kind in absent(servers):
        report(servers.missing(kind))


def absent(servers) -> list[str]:
    return [kind for kind, server in servers.KINDS.items() if server.package and servers.missing(kind)]


def report(reason: str):
    if os.environ.get("CI") == "true":
        raise Failed(reason)
    say(f"{reason}. Its tests are skipped.")


def install(packages: list[str]):
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    with no_service_starts():
        run("apt-get", "update", "-q", env=env, quiet=True)
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages, env=env, quiet=True)


@contextlib.contextmanager
def no_service_starts():
    """Packages ask this file whether they may start their service; the machine's own answer is put back afterwards."""
    kept = POLICY.with_name("policy-rc.d.before-djqueue")
    if POLICY.exists():
        POLICY.rename(kept)
    POLICY.write_text(REFUSE_ALL)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
        if kept.exists():
            kept.rename(POLICY)
