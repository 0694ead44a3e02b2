"""Install what the tests need as Debian packages: servers, without letting any of them start, and a browser."""

import contextlib
import os
import shutil
from pathlib import Path

from steps import Failed, run, say

POLICY = Path("/usr/sbin/policy-rc.d")
REFUSE_ALL = "#!/bin/sh\nexit 101\n"


def ensure(servers, browser=None):
    """Install what is missing, as root on Debian; elsewhere what is missing fails under CI=true and is said at home.

    `servers` and `browser` are these modules of tests.support."""
    wanted = absent(servers, browser)
    if wanted and os.geteuid() == 0 and shutil.which("apt-get"):
        install([package for packages in wanted.values() for package in packages])
    for reason in absent(servers, browser):
        report(reason)


def absent(servers, browser) -> dict[str, list[str]]:
    """Why something is missing, and the packages that have it."""
    kinds = {kind: server.package for kind, server in servers.KINDS.items() if server.package}
    missing = {servers.missing(kind): [package] for kind, package in kinds.items()}
    if browser:
        missing[browser.missing()] = [*browser.PACKAGES]
    return {reason: packages for reason, packages in missing.items() if reason}


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
