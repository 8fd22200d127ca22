"""No control character of a text reaches the terminal, by whatever way and by whatever command it is printed."""

import ast
import logging
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import track
from rich.table import Table

import dbdp
from dbdp.interfaces.cli import printing
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.plain import plain, plain_lines, plain_output
from dbdp.interfaces.python.progress_bar import progress_bar
from dbdp.interfaces.terminal import Terminal

HOSTILE = "\x1b]0;pwned\x07\x9b31m\x90q\r\b\x00\u202e\u2028\u200b[link=http://x]\x1b[2J"
ESCAPED = re.compile(r"\\x1b\]0;pwned(\\x07)?\\x9b31m\\x90q(\\r\\x08)?\\x00\\u202e\\u2028\\u200b")  # rich drops some


def is_plain(shown: str) -> bool:
    return plain_lines(shown) == shown


@given(st.text())
def test_a_plain_text_is_printable_and_a_printable_text_stays(text):
    assert plain(text).isprintable()
    assert plain_lines(text).translate({10: None, 9: None}).isprintable()
    assert plain_lines(text).count("\n") == text.count("\n")
    assert plain(plain(text)) == plain(text)
    if text.isprintable():
        assert plain(text) == plain_lines(text) == text


def by_table() -> None:
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    printing.console.print(table)


def by_warning() -> None:
    warnings.warn(HOSTILE, stacklevel=1)


def by_log() -> None:
    logging.basicConfig(force=True, stream=sys.stderr)
    logging.getLogger("other").warning(HOSTILE)
    logging.basicConfig(force=True, handlers=[logging.NullHandler()])


def by_prompt() -> None:
    click.confirm(HOSTILE, err=True)


def by_refusal() -> None:
    raise click.UsageError(HOSTILE)


def by_progress() -> None:
    with progress_bar() as progress:
        progress(HOSTILE, 0, 2)
        progress(HOSTILE, 2, 2)


WAYS = {
    "print": lambda: print(HOSTILE),
    "stderr": lambda: sys.stderr.write(f"{HOSTILE}\n"),
    "lines": lambda: sys.stdout.writelines([HOSTILE, "\n"]),
    "click": lambda: click.echo(HOSTILE),
    "click, stderr": lambda: click.echo(HOSTILE, err=True),
    "click, colour": lambda: click.secho(HOSTILE, fg="red", color=True),
    "console": lambda: printing.console.print(HOSTILE),
    "rule": lambda: printing.console.rule(HOSTILE),
    "another console": lambda: Terminal(stderr=True).print(HOSTILE),
    "line": lambda: printing.print_line(HOSTILE),
    "done": lambda: printing.show_done(HOSTILE, False),
    "rows": lambda: printing.show([{HOSTILE: HOSTILE}], False, HOSTILE),
    "JSON": lambda: printing.show([{HOSTILE: HOSTILE}], True, HOSTILE),
    "mapping": lambda: printing.show_mapping({HOSTILE: HOSTILE}, False, HOSTILE),
    "table": by_table,
    "warning": by_warning,
    "log": by_log,
    "prompt": by_prompt,
    "usage": by_refusal,
    "progress": by_progress,
    "track": lambda: list(track([1], HOSTILE, console=Terminal())),
}


def every_command() -> Iterator[str]:
    for name in app.list_commands(None):
        command = app.get_command(None, name)
        inner = command.list_commands(None) if isinstance(command, click.Group) else []
        yield from (f"{name} {each}" for each in inner) if inner else (name,)


def command_of(name: str) -> click.Command:
    command: click.Command = app
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(None, word)
    return command


@pytest.mark.parametrize("name", list(every_command()))
@pytest.mark.attack("control-characters")
def test_no_command_prints_a_control_character(name, monkeypatch):
    """Each command is replaced by one that prints by every way, so that a new one is covered by being there."""
    command = command_of(name)
    monkeypatch.setattr(command, "params", [])
    for way, prints in WAYS.items():
        monkeypatch.setattr(command, "callback", prints)
        result = CliRunner().invoke(app, name.split())
        shown = result.stdout + result.stderr
        assert is_plain(shown), (way, shown)
        if way not in ("progress", "JSON", "rows", "mapping", "table", "rule", "track", "warning"):  # cut, or not shown
            assert ESCAPED.search(shown), (way, shown)


def test_names_of_commands_and_options_are_plain():
    for words in ([HOSTILE], ["train", HOSTILE, HOSTILE], ["train", f"--{HOSTILE}"], ["plot", HOSTILE]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        assert is_plain(result.stdout + result.stderr)


def test_without_the_exit_the_characters_would_be_shown(capsys):
    """The control: each way prints them where the exit is taken away."""
    for way in ("print", "stderr", "lines", "click", "log"):
        WAYS[way]()
        shown = "".join(capsys.readouterr())
        assert not is_plain(shown), way
        with plain_output():
            WAYS[way]()
        shown = "".join(capsys.readouterr())
        assert ESCAPED.search(shown), way
        assert is_plain(shown), way


ON_A_TERMINAL = """
import sys, warnings
sys.argv = ["dbdp", "version"]
from dbdp.interfaces.cli import main
from dbdp.interfaces.cli.printing import print_line, show
from dbdp.interfaces.python.progress_bar import progress_bar
import test_plain_output as tests
def act():
    for way, prints in tests.WAYS.items():
        if way not in ("prompt", "usage", "log"):
            prints()
    with progress_bar() as progress:
        progress("seen", 1, 2)
        print(tests.HOSTILE)
        warnings.warn(tests.HOSTILE)
    raise {error}(tests.HOSTILE)
main.app.get_command(None, "version").callback = act
main.app.get_command(None, "version").params = []
main.main()
"""
OF_RICH = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x1b\[\?25[lh]|\r")  # colours, cursor


@pytest.mark.parametrize(
    "error", ["ValueError", *(pytest.param(each, marks=pytest.mark.slow) for each in ("KeyError", "OSError"))]
)
@pytest.mark.attack("control-characters")
def test_a_terminal_sees_sequences_of_rich_only(error):
    master, slave = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "TERM": "xterm", "COLUMNS": "300"}
    command = [sys.executable, "-c", ON_A_TERMINAL.format(error=error)]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        shown = b""
        while piece := _read(master):
            shown += piece
    os.close(master)
    assert process.returncode == 1
    text = shown.decode()
    assert "\x1b[" in text  # it is a terminal for rich
    assert "seen" in text  # with a progress bar
    assert len(ESCAPED.findall(text)) > 10
    assert is_plain(OF_RICH.sub("", text.replace("\x1b[2J", "CLEARED")))
    assert not re.search(r"\x1b\[2J|pwned\x07|\x1b\]", text)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says so at the end of a terminal
        return b""


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(each, marks=pytest.mark.slow) for each in ("utf-8", "latin-1"))]
)
def test_no_encoding_of_the_output_leads_past_the_exit(encoding):
    """click writes past a stream that is ASCII, to its bytes: so such a one is taken for UTF-8."""
    code = ON_A_TERMINAL.format(error="ValueError")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONIOENCODING": encoding}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    shown = (ended.stdout + ended.stderr).decode("utf-8" if encoding == "ascii" else encoding)
    assert len(ESCAPED.findall(shown)) > 10
    assert is_plain(shown)


# --- one exit --------------------------------------------------------------------------------------------------------

PACKAGE = Path(dbdp.__file__).parent / "interfaces"
EXITS = {"plain.py", "terminal.py"}
OTHER_EXITS = (
    *("Console", "rich_proxied_file", "__stdout__", "__stderr__", "buffer", "openpty"),
    *("/dev/tty", "/dev/stdout", "/dev/stderr"),
)


def other_exits(text: str) -> set[str]:
    """What in a module could write to the terminal past the one exit."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        named = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
        if isinstance(node, ast.Constant) and node.value in OTHER_EXITS:
            named = node.value
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.write", "os.fdopen"):
            named = ast.unparse(node.func)
        if named in (*OTHER_EXITS, "os.write", "os.fdopen"):
            found.add(named)
    return found


def test_no_other_module_writes_to_a_terminal():
    modules = [path for folder in ("cli", "python", ".") for path in (PACKAGE / folder).glob("**/*.py")]
    assert len(modules) > 20
    for path in modules:
        if path.name not in EXITS:
            assert other_exits(path.read_text(encoding="utf-8")) == set(), path


@pytest.mark.parametrize(
    "code",
    ["from rich.console import Console", "sys.__stdout__.write(x)", "sys.stdout.buffer.write(x)", "os.write(1, x)"],
)
def test_another_exit_would_be_seen(code):
    assert other_exits(code)
