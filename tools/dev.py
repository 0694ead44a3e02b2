"""The project's tasks: `python tools/dev.py TASK`, or `make TASK`. Python 3.11 or newer is all they need."""

import argparse
import os
import signal
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - a stranger's machine may have an older one
    sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.11 ...")
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import apt
import venvs
from steps import ROOT, Failed, need, run, say, step

from tests.support import browser, servers
from tests.tasks.peers import peers

TYPED_PROJECT = "tests/typing/sample"
SCREENSHOTS = (
    "tests/documents/test_demo_pages.py",
    "tests/documents/test_walkthrough.py",
    "tests/dashboard/test_browser.py",
)

VENV, DEMO_VENV, RACE_VENV = ".venv", ".venv-demo", ".venv-race"
RACE, TESTS, TASK_TESTS = "tests/benchmarks/race", "tests", "tests/tasks"
Suites = dict[venvs.Combination, list[tuple[str, ...]]]
"""Combinations of Python and Django, and the calls of pytest on each."""

PROCESSORS = os.cpu_count() or 1
# Many tests wait for something: five for each processor keep them busy, of the quick ones four. A few at a time, so
# that none waits at the end for another one's many.
PYTEST = ("-m", "pytest", "--maxschedchunk", "4", "-n", str(min(10, 5 * PROCESSORS)))
QUICK_PYTEST = (*PYTEST[:-1], str(min(8, 4 * PROCESSORS)))
# What an interpreter can change shows in memory, where commands are declared and run.
INTERPRETER = (
    *("-m", "not slow and not alone"),
    *("-k", "not mariadb and not postgres and not redis and not sqs and not sqlite"),
    *(f"{TESTS}/{name}" for name in ("consumer", "messages", "running")),
    *(f"{TESTS}/test_{name}.py" for name in ("classes", "decorators", "deferrable", "discovery")),
)
# And a Django what its tasks do.
DJANGO = ("-m", "not slow and not alone", "-k", "not mariadb and not postgres and not redis", TASK_TESTS)


def test(full: bool = False):
    """Everything that must hold. The last line is pytest's own, unless another check has failed."""
    begun = time.monotonic()
    os.environ |= {"DJQUEUE_FULL": "1"} if full else {}
    others = found_combinations()
    suites = full_suites(others) if full else suites_of_a_push(others)
    python = prepare(suites)
    with step("lint"):
        run_lint(python)
    with ThreadPoolExecutor(1) as beside:  # they use one processor, and tests often wait
        checks = beside.submit(check_the_rest, python, "html" if full else "dummy")
        for combination, chosen in suites.items():
            for arguments in chosen:
                with step(f"tests on {combination}"):
                    run(ensure_venv_of(combination), *arguments)
        if full:
            third_party()
            django_own_tests()
        say(f"--- tests on Python {sys.version.split()[0]}, after {time.monotonic() - begun:.0f} s")
        hand_over(python, *PYTEST)
        try:
            checks.result()
        except SystemExit:
            sys.exit("FAILED: a check next to the tests, see above")


def test_all():
    """The same at full size, on every supported Python and Django that is found."""
    test(full=True)


def lint():
    """Style of the code, its formatting, and its types."""
    python = venvs.ensure(VENV, "test")
    with step("lint"):
        run_lint(python)
    with step("types"):
        run_types(python)


def format_code():
    """Put the code into its format."""
    python = venvs.ensure(VENV, "test")
    run(python, "-m", "ruff", "check", "--fix", ".")
    run(python, "-m", "ruff", "format", ".")


def docs():
    """Build the documentation into docs/_build."""
    check_documents(venvs.ensure(VENV, "test"), "html")


def screenshots():
    """Make the pictures in docs/images anew, of the pages as they are now. Look at them."""
    apt.ensure(servers, browser)
    os.environ |= {"DJQUEUE_WRITE_SCREENSHOTS": "1", "DJQUEUE_FULL": "1"}
    tests = ("documents/test_demo_pages.py", "documents/test_walkthrough.py", "dashboard/test_browser.py")
    hand_over(venvs.ensure(VENV, "test"), "-m", "pytest", *(f"{TESTS}/{name}" for name in tests))


def bench_quick(write: bool):
    """What a message costs, in turns of a reference loop; fails where that is more than it was."""
    need("tests/benchmarks/run.py")
    apt.ensure(servers)
    python = venvs.ensure(VENV, "test")
    hand_over(python, "tests/benchmarks/run.py", *(["--write"] if write else []))


def bench_before(commit: str):
    """What enqueueing and draining cost here, in turns with another commit."""
    need("tests/benchmarks/before.py")
    apt.ensure(servers)
    python = venvs.ensure(VENV, "test")
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "djqueue"
        run("git", "worktree", "add", "-q", "--detach", checkout, commit)
        try:
            run(python, "-m", "compileall", "-q", checkout / "djqueue")
            run(python, "-m", "tests.benchmarks.before", "--before", checkout)
        finally:
            run("git", "worktree", "remove", "--force", checkout)


def race(quick: bool):
    """djqueue next to its peers, measured in one run; the results go into docs/performance."""
    need(f"{RACE}/requirements.txt")
    apt.ensure(servers)
    lines = (ROOT / RACE / "requirements.txt").read_text().splitlines()
    pins = tuple(line for line in lines if not line.startswith("#"))
    python = venvs.ensure(RACE_VENV, "redis,postgres", pins=pins)
    hand_over(python, "-m", "tests.benchmarks.race.run", *(["--quick"] if quick else []))


def kill_loops(minutes: float):
    """Kill consumers again and again on five stores: with threads, processes and coroutines, and under throttles."""
    loops = ("tests/faults/kill_loops.py", "tests/faults/throttle_loops.py")
    need(*loops)
    apt.ensure(servers)
    os.environ["DJQUEUE_KILL_MINUTES"] = str(minutes)
    python = venvs.ensure(VENV, "test")
    hand_over(python, "-m", "pytest", "-n", "5", "--maxschedchunk", "1", *loops)


def scale(write: bool):
    """Measure what a message costs in queues of up to a million."""
    need("tests/benchmarks/scale.py")
    python = venvs.ensure(VENV, "test")
    hand_over(python, "tests/benchmarks/scale.py", "--full", *(["--save"] if write else []))


def bench_operations():
    """Measure what operators' pages and commands cost where a million messages wait."""
    need("tests/benchmarks/operations.py")
    apt.ensure(servers)
    hand_over(venvs.ensure(VENV, "test"), "tests/benchmarks/operations.py")


def conformance():
    """The conformance suite on djqueue and other backends of Django's tasks; the outcome goes into docs."""
    apt.ensure(servers)
    start_servers()
    pythons = []
    for python, django in peers.EACH:
        if interpreter := venvs.interpreter(python):
            packages = {peer.package for peer in peers.PEERS.values() if (python, django) in peer.combinations}
            pins = (f"Django=={django}.*", "PyMySQL>=1.1", *sorted(packages - {"Django", "djqueue"}), *backport(django))
            made = venvs.ensure(f".venv-conformance-{django}", "redis,postgres", interpreter, pins)
            pythons.append(f"{django}={made}")
        else:
            say(f"--- Django {django} is left out: there is no Python {python}")
    hand_over(sys.executable, "-m", "tests.tasks.peers.run", *pythons)


def demo(once: bool, trouble: bool, photos: str | None):
    """The example site with its consumer, until Ctrl-C; once: a batch of pictures, counted, and the end."""
    need("example_project/demo.py")
    python = str(venvs.ensure(DEMO_VENV, "demo"))
    arguments = [*(["--once"] if once else []), *(["--trouble"] if trouble else [])]
    arguments += [*(["--photos", os.path.abspath(photos)] if photos else [])]
    os.chdir(ROOT)
    os.execv(python, [python, "example_project/demo.py", *arguments])  # so that Ctrl-C and SIGTERM reach it


def prepare(suites: Suites) -> Path:
    """The virtual environments, with their tests compiled, and the running servers."""
    with step("virtual environments, servers and browser"), ThreadPoolExecutor() as pool:
        programs = pool.submit(apt.ensure, servers, browser)
        demo = pool.submit(venvs.ensure, DEMO_VENV, "demo")
        made = [demo, *(pool.submit(prepare_other, *pair) for pair in suites.items())]
        python = venvs.ensure(VENV, "test")
        compile_all(python, TESTS)
        for one in (programs, *made):
            one.result()
    with step("servers"):
        start_servers()
    return python


def prepare_other(combination: venvs.Combination, chosen: list[tuple[str, ...]]):
    python = ensure_venv_of(combination)
    for arguments in chosen:
        compile_all(python, *(word for word in arguments if word.startswith(TESTS)))


def compile_all(python: Path, *tests: str):
    """What the tests import is compiled once; else each worker would, as they begin at the same time."""
    run(python, "-m", "pytest", "--collect-only", "-q", *tests, quiet=True)


def ensure_venv_of(combination: venvs.Combination) -> Path:
    name = f".venv-{combination.python}-django{combination.django}"
    pins = (f"Django=={combination.django}.*", *backport(combination.django))
    return venvs.ensure(name, "core", venvs.interpreter(combination.python), pins)


def backport(django: str) -> tuple[str, ...]:
    """The package that has the tasks of Django 6."""
    return ("django-tasks>=0.12",) if django.startswith("5.") else ()


def start_servers():
    """One set for the whole run: their addresses travel in the environment, they stop when this process ends."""
    servers.run_dir()
    for kind in servers.SHARED:
        if not servers.missing(kind):
            servers.start(kind)


def check_the_rest(python: Path, builder: str):
    check_code(python)
    check_documents(python, builder)
    check_package(python)
    with step("demo"):
        run_demo("--once")


def check_code(python: Path):
    django = (python, "-W", "error::RuntimeWarning", "-m", "django")
    settings = {"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)}
    with step("types"):
        run_types(python)
    with step("migrations"):
        run(*django, "makemigrations", "--check", "--dry-run", env=settings)
    with step("system checks"):
        run(*django, "check", env=settings)
        need("example_project/manage.py")
        run(python, "example_project/manage.py", "check")


def run_lint(python: Path):
    run(python, "-m", "ruff", "check", ".")
    run(python, "-m", "ruff", "format", "--check", ".")


def run_types(python: Path):
    """Of the files that setup.cfg names."""
    run(python, "-m", "mypy")


def check_documents(python: Path, builder: str):
    """What Sphinx warns of is an error. The builder "dummy" reads and resolves, but highlights and writes nothing."""
    with step("documentation"):
        need("docs/conf.py")
        run(python, "-m", "sphinx", "-E", "-a", "-W", "--keep-going", "-q", "-b", builder, "docs", "docs/_build")


def check_package(python: Path):
    """Source archive, wheel from it, and what a project finds that has nothing else but Django and croniter."""
    with step("package"), tempfile.TemporaryDirectory() as folder:
        venvs.build(folder)
        wheel = next(Path(folder).glob("*.whl"))
        check_contents(wheel)
        venvs.create(Path(folder) / "bare")
        bare = Path(folder) / "bare/bin/python"
        venvs.install(Path(folder) / "bare", wheel)
        run(bare, "-c", "import djqueue; print('djqueue', djqueue.__version__)", cwd=folder)
        check_typed_project(python, bare)


def check_contents(wheel: Path):
    """Templates, Lua scripts and their like are easily forgotten in a wheel."""
    files = {p for p in (ROOT / "djqueue").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    left_out = {p.relative_to(ROOT).as_posix() for p in files} - set(zipfile.ZipFile(wheel).namelist())
    if left_out:
        raise Failed(f"not in {wheel.name}: {', '.join(sorted(left_out))}")


def check_typed_project(python: Path, installed: Path):
    """A project with strict types, whose wrong calls say which error each is. A comment too many is an error, too."""
    mypy = (python, "-m", "mypy", "--strict", "--explicit-package-bases", "--config-file=", "--cache-dir", os.devnull)
    run(*mypy, "--python-executable", installed, "shop", cwd=ROOT / TYPED_PROJECT)


def run_demo(*args: str):
    need("example_project/demo.py")
    run(venvs.ensure(DEMO_VENV, "demo"), "example_project/demo.py", *args)


def found_combinations() -> list[venvs.Combination]:
    """The other combinations of which there is an interpreter, the newest first. What is not found is said."""
    others = [combination for combination in reversed(venvs.MATRIX) if combination != venvs.default_combination()]
    for version in sorted({combination.python for combination in others}):
        say(f"--- other interpreter {version}: {venvs.interpreter(version) or 'not found'}")
    return [combination for combination in others if venvs.interpreter(combination.python)]


def suites_of_a_push(found: list[venvs.Combination]) -> Suites:
    """On the newest combination what an interpreter can change; on each Django 6 its tasks, on the newest Python.
    Django 5.2 has them from another package."""
    chosen = {combination: [(*QUICK_PYTEST, *INTERPRETER)] for combination in found[:1]}
    for combination in {one.django: one for one in reversed(found) if not one.django.startswith("5.")}.values():
        chosen.setdefault(combination, []).append((*QUICK_PYTEST, *DJANGO))
    return chosen


def full_suites(found: list[venvs.Combination]) -> Suites:
    """The core suite on each combination, without what starts processes, and all tests of Django's tasks."""
    core = (*QUICK_PYTEST, "-m", "not slow and not alone", "--ignore", TASK_TESTS, TESTS)
    return {combination: [core, (*PYTEST, "-m", "not alone", TASK_TESTS)] for combination in found}


def third_party():
    """Wagtail, which enqueues by Django's tasks, as it comes from PyPI: on the oldest Django and on the newest."""
    for python, django in (peers.EACH[0], peers.EACH[-1]):
        if interpreter := venvs.interpreter(python):
            with step(f"Wagtail on Django {django}"):
                pins = (f"Django=={django}.*", "wagtail", "django-tasks>=0.12")
                made = venvs.ensure(f".venv-wagtail-{django}", "redis", interpreter, pins)
                run(made, "-m", "tests.tasks.third_party.site")


def django_own_tests():
    """Django's own tests of tasks, from the source archive of each Django that has tasks."""
    for pair in peers.EACH:
        combination = venvs.Combination(*pair)
        if not backport(combination.django) and venvs.interpreter(combination.python):
            with step(f"Django's own tests of tasks on {combination}"):
                run(ensure_venv_of(combination), "-m", "tests.tasks.django_own.run", venvs.pip())


def hand_over(*command):
    """The last command of a task: its output ends the task's output, its exit code is the task's."""
    try:
        run(*command)
    except Failed:
        sys.exit(1)


TASKS = {
    "test": test,
    "test-all": test_all,
    "lint": lint,
    "format": format_code,
    "docs": docs,
    "screenshots": screenshots,
    "bench-operations": bench_operations,
    "conformance": conformance,
}


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="make", description=__doc__)
    tasks = main.add_subparsers(dest="task", required=True, metavar="TASK")
    player = tasks.add_parser("demo", help=demo.__doc__)
    player.add_argument("--once", action="store_true", help="in make: ONCE=1")
    player.add_argument("--trouble", action="store_true", help="under load, with failures; in make: TROUBLE=1")
    player.add_argument("--photos", metavar="DIR", help="a folder of pictures; in make: PHOTOS=DIR")
    player.set_defaults(function=demo)
    bencher = tasks.add_parser("bench-quick", help=bench_quick.__doc__)
    bencher.add_argument("--write", action="store_true", help="store the figures of this run; in make: WRITE=1")
    bencher.set_defaults(function=bench_quick)
    comparer = tasks.add_parser("bench-before", help=bench_before.__doc__)
    comparer.add_argument("--commit", default="HEAD", help="the other commit; in make: COMMIT=main~5 (default: HEAD)")
    comparer.set_defaults(function=bench_before)
    racer = tasks.add_parser("race", help=race.__doc__)
    racer.add_argument(
        "--quick", action="store_true", help="fewer messages, one round, nothing written; in make: QUICK=1"
    )
    racer.set_defaults(function=race)
    killer = tasks.add_parser("kill-loops", help=kill_loops.__doc__)
    killer.add_argument("--minutes", type=float, default=1, help="of each loop; in make: MINUTES=10 (default: 1)")
    killer.set_defaults(function=kill_loops)
    scaler = tasks.add_parser("scale", help=scale.__doc__)
    scaler.add_argument("--write", action="store_true", help="store the figures for the documents; in make: WRITE=1")
    scaler.set_defaults(function=scale)
    for name, function in TASKS.items():
        tasks.add_parser(name, help=function.__doc__).set_defaults(function=function)
    return main


def main():
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the tests start hundreds of processes: each would compile it all
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = vars(parser().parse_args())
    options.pop("task")
    try:
        options.pop("function")(**options)
    except Failed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
