"""A reader's shell, psql and Python: each stays open for a page."""

import json
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pages import SHELLS, Step

PATIENCE = 120  # seconds for one step
PYTHON = """
import json, os, sys, traceback
place = {"__name__": "__main__"}
for line in sys.stdin:
    asked = json.loads(line)
    os.environ["DBDP_URL"] = asked["url"]
    try:
        exec(compile(asked["code"], "the page", "exec"), place)
    except BaseException as error:
        print(*traceback.format_exception_only(error), "[failed]", sep="\\n")
    print(asked["mark"])
"""
FAILED = re.compile(r"^(?:\[failed.*\]|ERROR: .*|psql: error: .*|invalid command .*)$", re.MULTILINE)


class Interpreter:
    """A process that is fed its input piece by piece."""

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(environment),
            cwd=folder,
        )

    def run(self, piece: str, mark: str) -> str:
        """Feed a piece that prints the mark at its end; return what it printed before."""
        assert self._process.stdin
        assert self._process.stdout
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        printed = []
        try:
            self._process.stdin.write(piece)
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.rstrip("\n").endswith(mark):
                    return "".join([*printed, line.replace(mark, "")])
                printed.append(line)
        finally:
            watchdog.cancel()
        raise AssertionError(f"{self._process.args!r} ended:\n{''.join(printed)}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Reader:
    """Runs the blocks of a page in a folder, with a private server."""

    def __init__(self, environment: Mapping[str, str], folder: Path, url: str) -> None:
        self._environment, self._folder, self._private = environment, folder, url
        self._open: dict[tuple[str, ...], Interpreter] = {}

    def follow(self, step: Step) -> tuple[str, bool]:
        """Do a step; return what was printed, and whether it failed."""
        mark = f"end-{secrets.token_hex(8)}"
        if step.language in SHELLS:
            printed = self._interpreter("bash", "--norc").run(_for_bash(step.code, mark), mark)
        elif step.language == "sql":
            psql = self._interpreter("psql", "--no-psqlrc", "--dbname", self._url())
            printed = psql.run(f"{step.code}\n\\echo {mark}\n", mark)
        else:
            python = self._interpreter(sys.executable, "-u", "-c", PYTHON)
            request = {"code": step.code, "mark": mark, "url": self._url()}
            printed = python.run(json.dumps(request) + "\n", mark)
        return re.sub(r"^\[failed.*\]\n", "", printed, flags=re.MULTILINE), FAILED.search(printed) is not None

    def close(self) -> None:
        """End all that was started."""
        for interpreter in self._open.values():
            interpreter.close()

    def _url(self) -> str:
        """The server that the page's shell has exported, else the private one."""
        mark = f"end-{secrets.token_hex(8)}"
        shown = self._interpreter("bash", "--norc").run(f'echo "$DBDP_URL"\necho {mark}\n', mark)
        return shown.strip() or self._private

    def _interpreter(self, *command: str) -> Interpreter:
        if command not in self._open:
            self._open[command] = Interpreter(list(command), self._environment, self._folder)
        return self._open[command]


def _for_bash(code: str, mark: str) -> str:
    """A piece in which every failure shows, and no command reads what is still to come."""
    return f"trap 'echo \"[failed: exit code $?]\"' ERR\n{{\n{code}\n}} < /dev/null\ntrap - ERR\necho {mark}\n"


@contextmanager
def reader(environment: Mapping[str, str], folder: Path, url: str) -> Iterator[Reader]:
    """A reader who puts everything away at the end."""
    one = Reader(environment, folder, url)
    try:
        yield one
    finally:
        one.close()
