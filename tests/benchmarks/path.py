"""What one message passes on its way through djqueue, on Redis and on databases.

    python -m tests.benchmarks.path [--list] [BACKEND …]

A plain message, one that fails once and is retried, and one that is throttled: each is sent to a waiting consumer of
one thread, after others like it. Counted is what is done for it in the sender, in the turns of the pump that claim and
settle it, and in the worker; announcer, housekeeper, reaper, scheduler and idle turns are not. Files are those of
which a function was called, leaves included; on Redis the files of the called scripts are counted apart. Moves are
calls from one file into another. Statements are counted without BEGIN and COMMIT. Frames are those from the loop of
the worker, which is included, to the user's function, with ``Context.run``; those of the call are all functions of
Python that are called when it is sent, of djqueue, Django and the driver. Prints a table in reStructuredText;
``--list`` the files too.
"""

from __future__ import annotations

from tests.benchmarks.programs import environment, output, parser

BACKENDS = ("redis", "sqlite", "postgres")
COLUMNS = (
    *("Backend", "Message", "Files", "Lua files", "Functions", "Calls", "Moves", "Statements or scripts", "Frames"),
    "Frames of the call",
)


def row(backend: str, case: str, found: dict) -> list[str]:
    asked = f"{sum(found['asked'])} ({' + '.join(map(str, found['asked']))})"
    sizes = [len(found["files"]), len(found["lua"]) or "–", found["functions"], found["calls"], found["moves"]]
    return [backend, case, *map(str, sizes), asked, str(len(found["frames"])), str(found["called"])]


def table(rows: list[list[str]]) -> str:
    lines = [".. list-table::", "    :header-rows: 1", ""]
    for cells in [list(COLUMNS), *rows]:
        lines += [f"    {'*' if number == 0 else ' '} - {cell}" for number, cell in enumerate(cells)]
    return "\n".join(lines)


def main() -> None:
    switches = parser(__doc__, BACKENDS)
    switches.add_argument("--list", action="store_true", help="also print the files, the frames and the statements")
    options = switches.parse_args()
    rows = []
    for backend in options.backends:
        for case, found in output("tracing", environment(backend)).items():
            rows.append(row(backend, case, found))
            if options.list:
                print(f"{backend}, {case}", *found["files"], *found["lua"], sep="\n    ")
                print("  frames", *found["frames"], sep="\n    ")
                print("  statements", *found["statements"], sep="\n    ", end="\n\n")
    print(table(rows))


if __name__ == "__main__":
    main()
