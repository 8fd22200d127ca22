"""What all commands share: JSON, exit codes, completion, a quick start, and progress with the time that is left."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import psycopg
import pytest
from acting import acting
from click.testing import CliRunner
from commands import run_here
from pairs import others_slow
from psycopg.conninfo import make_conninfo
from rich.progress import Progress
from servers import execute

from dbdp import __version__
from dbdp.algorithms import Request
from dbdp.interfaces.cli import admin, main, printing
from dbdp.interfaces.cli.index import PLACES, SUMMARIES
from dbdp.interfaces.cli.main import EXIT_CODES, app
from dbdp.interfaces.python import progress_bar
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.progress_bar import seconds_left
from dbdp.interfaces.terminal import Terminal

ROOT = Path(__file__).parents[2]
PRINT_FOR_PEOPLE = {"demo", "reproduce", "server stop", "server psql", "web"}  # shows, nothing, psql's own, a server
HEAVY = {
    "numpy",
    "psycopg",
    "rich",
    "sqlalchemy",
    "sklearn",
    "matplotlib",
    "scipy",
    "fastapi",
    "uvicorn",
    "jinja2",
    "pydantic",
}


def every_command() -> Iterator[tuple[str, click.Command]]:
    for name in app.list_commands(None):
        command = app.get_command(None, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", command.get_command(None, inner)) for inner in command.list_commands(None))
        else:
            yield name, command


def test_every_command_that_prints_can_print_json():
    without = {name for name, each in every_command() if not any("--json" in option.opts for option in each.params)}
    assert without <= PRINT_FOR_PEOPLE
    assert len(dict(every_command())) > 30


def test_no_module_of_commands_has_one_that_is_not_listed():
    for module in set(PLACES.values()):
        there = set(import_module(f"dbdp.interfaces.cli.{module}").app.list_commands(None))
        assert there == {name for name, place in PLACES.items() if place == module}


def test_the_help_shows_the_first_line_of_each_commands_help():
    own = {name: app.get_command(None, name).help.partition("\n\n")[0] for name in PLACES}
    assert {name: " ".join(text.split()) for name, text in own.items()} == SUMMARIES
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).output.split())
    assert all(text in shown for text in SUMMARIES.values())


def modules_after(*arguments: str) -> set[str]:
    """What a fresh interpreter has loaded after a command, which must succeed."""
    code = (
        "import sys; from dbdp.interfaces.cli.main import main\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_the_start_imports_nothing_heavy():
    loaded = modules_after("version")
    assert CliRunner().invoke(app, ["version"]).output == f"{__version__}\n"
    assert "click" in loaded
    assert not loaded & HEAVY


def test_the_help_imports_no_command():
    loaded = modules_after("--help")
    assert not loaded & HEAVY
    assert not {name for name in loaded if name.startswith("dbdp.interfaces.cli.")} - {
        "dbdp.interfaces.cli.main",
        "dbdp.interfaces.cli.click_adapter",
        "dbdp.interfaces.cli.index",
    }


def assert_light(loaded: set[str]) -> None:
    """Check that a command imported psycopg, and nothing that plans or trains."""
    assert "psycopg" in loaded
    assert not loaded & (HEAVY - {"rich", "psycopg"})
    assert not {name for name in loaded if name.startswith(("dbdp.algorithms", "dbdp.learning", "dbdp.controller"))}


@pytest.mark.parametrize("command", others_slow(["datasets", "models", "ledger", "check-ledger"], "datasets", "ledger"))
def test_a_list_imports_nothing_that_plans_or_trains(server_url, command):
    assert_light(modules_after(command, "--json", "--url", server_url))


def test_a_budget_imports_nothing_that_plans_or_trains(registered, server_url):
    assert_light(modules_after("budget", registered, "--json", "--url", server_url))


def test_explaining_imports_no_server():
    """Explaining imports the algorithms that it considers and no server."""
    loaded = modules_after("explain", "--rows", "9", "--features", "1", "--epsilon", "1", "--delta", "1e-6")
    assert {"numpy", "dbdp.algorithms.families.preconditioned.preconditioned_gd"} <= loaded
    assert not loaded & (HEAVY - {"numpy", "rich"})
    assert not loaded & {
        "dbdp.algorithms.families.noisy_sgd.dp_sgd",
        "dbdp.algorithms.families.selections.privgene",
        "dbdp.learning.networks",
    }


@pytest.mark.parametrize(
    ("group", "typed", "meant"),
    [
        *(([], "trian", "train"), ([], "dataset", "datasets"), ([], "registre", "register")),
        *((["plot"], "utlity", "utility"), (["server"], "strat", "start")),
    ],
)
def test_a_misspelt_command_names_the_nearest(group, typed, meant):
    done = CliRunner().invoke(app, [*group, typed])
    assert done.exit_code == 2
    assert f"No such command '{typed}'; did you mean '{meant}'?" in done.output


@pytest.mark.parametrize(
    ("typed", "told"),
    [("--max-iter", "pass settings"), ("--C", "pass radius"), ("--epoch", "--epochs"), ("--alpha", "pass radius")],
)
def test_an_option_of_scikit_learns_is_refused_with_ours(typed, told):
    """An option by a word of scikit learn is refused with ours and another with the nearest."""
    done = CliRunner().invoke(app, ["train", "patients", "--epsilon", "1", typed, "3"])
    assert done.exit_code == 2
    assert f"No such option '{typed}'" in done.output
    assert told in re.sub(r"[\s│]+", " ", done.output)


@pytest.mark.parametrize(
    ("word", "remedy"), [("auc", "pass it by its option, --metric auc"), ("auk", "options have names, see `")]
)
def test_a_value_without_its_option_names_the_option(word, remedy):
    done = CliRunner().invoke(app, ["score", "3", "patients", word, "--epsilon", "1"])
    assert done.exit_code == 2
    assert remedy in re.sub(r"[\s│]+", " ", done.output)


def test_a_command_like_no_other_names_the_list():
    assert "No such command 'zzz'; see `dbdp --help`" in CliRunner().invoke(app, ["zzz"]).output


# --- exit codes -----------------------------------------------------------------------------------------


def test_a_finding_of_the_ledger_has_an_exit_code_of_its_own(server_url):
    with psycopg.connect(server_url) as connection:
        whole = connection.execute("select coalesce(bool_and(ok), true) from dbdp.check_ledger()").fetchone()[0]
    done = run_here("check-ledger", "--json", DBDP_URL=server_url)
    assert done.returncode == (0 if whole else 3)
    assert all(row["ok"] for row in json.loads(done.stdout)) == whole


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["version", "--json"], 0),
        (["explain", "--rows", "10", "--features", "2", "--epsilon", "0"], 1),
        (["datasets", "--url", "postgresql:///none?host=/nonexistent"], 1),
        (["explain", "--rows", "many"], 2),
        (["trian"], 2),
        (["train", "t"], 2),
        (["plot", "noise", "x.png"], 2),
        (["plot", "noise", "x.gif", "--rows", "10", "--features", "2"], 1),
    ],
)
def test_exit_codes_are_as_documented(arguments, code):
    done = run_here(*arguments)
    assert done.returncode == code
    assert f"{code} " in EXIT_CODES
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (code == 0)
    assert code != 1 or (done.stderr.startswith("error: ") and done.stderr.count("\n") == 1)


def test_the_page_of_the_command_line_has_every_exit_code():
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [code for code in ("0", "1", "2", "3", "130") if f"| {code} |" not in page or code not in EXIT_CODES] == []


WARNS = """
import logging
from dbdp.interfaces.cli import main
warn = logging.getLogger("psycopg").warning
main.app = lambda: warn("inside")
warn("outside")
main.main()
"""


def test_a_warning_of_the_driver_is_no_line_of_a_command():
    """Psycopg warns when Ctrl-C interrupts a pipeline. The control is the warning before the command."""
    done = subprocess.run([sys.executable, "-c", WARNS], capture_output=True, text=True, check=True)
    assert done.stderr == "outside\n"


def test_ctrl_c_is_one_line_and_130_and_the_charge_stays(server_url, connection):
    connection.execute(
        "create table patience as select i % 50 as age, i % 2 = 0 as ill from generate_series(1, 5000) as i"
    )
    connection.execute(
        "select dbdp.register_dataset('patience', 'patience', 'ill', 'true', '{\"age\": [0, 50]}', 4, 1e-6)"
    )
    arguments = (
        "train",
        "patience",
        "--epsilon",
        "1",
        "--algorithm",
        "bolt_on",
        "--epochs",
        "20000",
        "--batch-size",
        "5000",
    )
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *arguments]
    with subprocess.Popen(command, env=os.environ | {"DBDP_URL": server_url}, stderr=subprocess.PIPE) as running:
        training = (
            "select count(*) from pg_stat_activity"
            " where state = 'active' and query ~ 'dbdp_internal[.]sgd_epoch' and pid <> pg_backend_pid()"
        )
        deadline = time.monotonic() + 60
        while connection.execute(training).fetchone() == (0,) and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        shown = running.communicate(timeout=60)[1].decode()
    assert running.returncode == 130
    assert shown.splitlines() == ["interrupted; charges stay"]
    outcome = "select outcome, charge > 0 from dbdp.history_details where dataset = 'patience'"
    assert connection.execute(outcome).fetchall() == [("failed", True)]
    connection.execute("select dbdp.drop_dataset('patience'); drop table patience")


# --- what cannot be undone ------------------------------------------------------------------------------


def test_an_uninstallation_asks_for_confirmation(make_database):
    """An uninstallation lists what is deleted and asks for confirmation."""
    url = make_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create extension dbdp cascade; create view listed as select name from dbdp.datasets")
        refused = run_here("uninstall", "--url", url)
        assert refused.returncode == 1
        assert "deletes 0 datasets, 0 charges, 0 models" in refused.stderr
        assert "view public.listed depends on" in refused.stderr
        assert "This stays: files" in refused.stderr
        assert "This stays: extension plpython3u" in refused.stderr
        assert connection.execute("select count(*) from listed").fetchone() == (0,)
        done = json.loads(run_here("uninstall", "--url", url, "--yes", "--json").stdout)["dropped"]
        assert (done["datasets"], len(done["others"])) == (0, 1)
        assert connection.execute("select to_regclass('listed') is null").fetchone() == (True,)
    assert "was not installed" in run_here("uninstall", "--url", url).stdout


def state_of(url: str) -> list[tuple[object, ...]]:
    """What an installation changes in a database and on its server."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(
            "select extname, extversion from pg_extension union all select rolname, '' from pg_roles union all "
            "select setdatabase::text, setconfig::text from pg_db_role_setting order by 1, 2"
        ).fetchall()


@pytest.mark.usefixtures("server_machine")
def test_a_dry_run_lists_what_an_installation_then_changes(make_database):
    url = make_database()
    before = state_of(url)
    shown = run_here("install", "--url", url, "--dry-run")
    assert state_of(url) == before
    expected = json.loads(run_here("install", "--url", url, "--dry-run", "--json").stdout)
    assert (expected["dry_run"], [line.partition(":")[0] for line in expected["changes"]]) == (
        True,
        ["extension plpython3u", f"extension dbdp {__version__}", f"search_path of database {url_name(url)}"],
    )
    assert [line for line in shown.stdout.splitlines() if line.startswith("would change: ")] == [
        f"would change: {line}" for line in expected["changes"]
    ]
    done = json.loads(run_here("install", "--url", url, "--json").stdout)
    assert done["changes"] == expected["changes"]
    after = dict(state_of(url))
    assert after["dbdp"] == __version__
    assert "plpython3u" in after
    assert json.loads(run_here("install", "--url", url, "--dry-run", "--json").stdout)["changes"] == []


def url_name(url: str) -> str:
    with psycopg.connect(url) as connection:
        return connection.info.dbname


@pytest.mark.usefixtures("server_machine")
def test_an_uninstallation_names_what_it_leaves(make_database):
    url = make_database()
    run_here("install", "--url", url)
    asked = run_here("uninstall", "--url", url)
    done = run_here("uninstall", "--url", url, "--yes")
    promised = [line for line in asked.stderr.splitlines() if line.startswith("This stays: ")]
    assert promised == [f"This {line}" for line in done.stdout.splitlines()[:-1]]
    stays = [line.removeprefix("stays: ").partition(" ")[0] for line in done.stdout.splitlines()[:-1]]
    assert stays == ["files", "extension", "roles"]  # other databases of this server have the extension
    assert "drop extension plpython3u" in done.stdout
    execute(url, "drop extension plpython3u")
    assert "plpython3u" not in run_here("uninstall", "--url", url).stdout


# --- what people see ------------------------------------------------------------------------------------


def printed(
    monkeypatch: pytest.MonkeyPatch, width: int, shown: Any, title: str = "t", by: str = "show", *more: Any
) -> str:
    """What a function of `printing` prints on a console of that width."""
    console = Terminal(width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(printing, "console", console)
    with console.capture() as capture:
        getattr(printing, by)(shown, False, title, *more)
    return capture.get()


def test_datasets_are_a_row_each_on_80_columns(server_url, connection, schema):
    connection.execute(
        "create table readmissions_in_spring as select i % 50 as age, i % 2 as y from generate_series(1, 9) i"
    )
    connect(connection).register_dataset(
        f"{schema}_of_a_hospital", "readmissions_in_spring", label="y", positive="1", features={"age": [0, 50]},
        epsilon=4, delta=1e-6,
    )  # fmt: skip
    names = [row["name"] for row in json.loads(run_here("datasets", "--json", DBDP_URL=server_url).stdout)]
    shown = run_here("datasets", DBDP_URL=server_url, COLUMNS="80").stdout
    assert "1 of" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert sum(bool(re.match(r"\w", line)) for line in shown.splitlines()) >= len(names)


def test_no_text_of_a_user_is_markup_or_moves_the_cursor(monkeypatch):
    odd = {"bank [old]": "x [/] y", "[/low]": "\x1b[2J\u202etext", "[red]": ":smile:"}
    for width in (100, 10):
        shown = printed(monkeypatch, width, [odd], "[/]")
        assert all(ord(each) >= ord(" ") or each == "\n" for each in shown)
        if width == 100:
            assert all(words in shown for words in ("[/]", *odd, "x [/] y", r"\x1b[2J\u202etext", ":smile:"))
    console = Terminal(width=100, color_system=None)
    monkeypatch.setattr(printing, "console", console)
    with console.capture() as capture:
        printing.show_done("table [/] \x1b is [old]", False)
    assert capture.get() == "table [/] \\x1b is [old]\n"


def test_a_paid_figure_is_shown_whatever_its_classes(monkeypatch):
    figures = {"noise": 1.5, "receipt": {"dataset": "[/]"}}
    assert "[/low]  7" in printed(monkeypatch, 100, figures, "[/]", "show_figures", [{"class": "[/low]", "rows": 7}])


def test_numbers_are_rounded_and_times_are_to_the_second(monkeypatch):
    at = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    shown = printed(monkeypatch, 80, [{"charge": 0.123456789, "at": at}])
    assert "0.123457  2026-02-03 04:05:06\n" in shown


def test_a_table_that_is_too_wide_is_printed_row_by_row(monkeypatch):
    rows = [{f"column_{i}": f"value_{i}" for i in range(9)}] * 2
    narrow, wide = printed(monkeypatch, 80, rows), printed(monkeypatch, 100, rows)
    assert "t: 1 of 2" in narrow
    assert "t: 2 of 2" in narrow
    assert all(f"column_{i} │ value_{i}" in narrow for i in range(9))
    assert wide.count("column_8") == 1
    assert wide.count("value_8") == 2


def test_a_url_that_is_longer_than_the_console_is_not_cut(monkeypatch):
    url = "postgresql://postgres@/dbdp?host=%2Fa%2Flong%2Fplace&port=5432"
    shown = printed(monkeypatch, 40, {"url": url}, "private server", "show_mapping")
    assert url in re.sub(r"[^\x21-\x7e]+", "", shown)


def test_a_file_that_is_not_a_json_object_is_named(tmp_path):
    for content in (b"[1]", b"{bad", b"\xff", b"[" * 100_000):
        (tmp_path / "f.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"^--features '.*f.json' is not a JSON object: "):
            printing.json_file(tmp_path / "f.json", "--features")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dbdp: no such thing", "no such thing"),
        ("connection failed: refused\n\tIs the server running?", "connection failed: refused; Is the server running?"),
    ],
)
def test_an_error_is_one_line_without_the_prefix_of_the_server(text, told):
    assert main._one_line(ValueError(text)) == told


def test_a_right_that_is_missing_has_a_remedy(server_url, registered, make_role):
    roles = make_role("unrelated"), make_role("analyst_only", "dbdp_analyst")
    stranger, analyst = (make_conninfo(server_url, options=f"-c role={role}") for role in roles)
    refused = run_here("datasets", DBDP_URL=stranger)
    assert refused.returncode == 1
    assert (
        "permission denied for view datasets_details; an administrator can grant to this role dbdp_data_owner"
        in refused.stderr
    )
    refused = run_here("baseline", registered, DBDP_URL=analyst)
    assert refused.stderr.startswith("error: permission denied for ")
    assert "a baseline needs the privilege to read the table and membership in dbdp_data_owner" in refused.stderr


@pytest.mark.parametrize("runs", [False, True])
def test_a_server_that_starts_or_stops_says_so(monkeypatch, runs):
    cluster = Mock(url="postgresql:///x", **{"status.return_value": {"running": runs}, "psql.return_value": 0})
    monkeypatch.setattr(admin, "_cluster", lambda: cluster)
    for command in ("start", "psql"):
        done = CliRunner().invoke(app, ["server", command])
        assert ("starting the private server" in done.stderr) == (not runs)
    assert CliRunner().invoke(app, ["server", "stop"]).stderr == "the private server is stopped\n"


def test_experiments_run_in_the_clone_with_what_was_given(monkeypatch):
    called = Mock(return_value=3)
    monkeypatch.setattr(admin.subprocess, "call", called)
    monkeypatch.setattr(admin, "PEERS", ("json",))
    given = ["--figure", "systems", "--dataset", "adult", "--repeats", "2", "--grid", "--full"]
    assert CliRunner().invoke(app, ["reproduce", *given]).exit_code == 3
    command = [sys.executable, "-m", "benchmarks.reproduce", *given]
    assert called.call_args.args[0] == command and called.call_args.kwargs == {"cwd": ROOT}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("CLONE", Path("/nowhere"), "run make reproduce in a clone of dbdp"),
        ("PEERS", ("json", "no_such_package"), r"need no_such_package; run pip install -e '\.\[accuracy\]' in "),
    ],
)
def test_experiments_that_cannot_be_run_name_what_is_missing(monkeypatch, name, value, remedy):
    monkeypatch.setattr(admin.subprocess, "call", Mock(side_effect=AssertionError))
    monkeypatch.setattr(admin, name, value)
    with pytest.raises(ValueError, match=remedy):
        CliRunner().invoke(app, ["reproduce"], catch_exceptions=False)


# --- completion -----------------------------------------------------------------------------------------


STARTED = "import sys; sys.argv[0] = 'dbdp'; from dbdp.interfaces.cli.main import main\n"


def answer(code: str, **environment: str) -> str:
    """What a fresh interpreter prints that the shell calls by these variables."""
    command, variables = [sys.executable, "-c", f"{STARTED}{code}"], os.environ | environment
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(words: str, code: str = "main()") -> set[str]:
    """What bash is offered for the last word."""
    place = str(len(words.split(" ")) - 1)
    lines = answer(code, _DBDP_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=place).splitlines()
    return {line.partition(",")[2] or line for line in lines}


def test_bash_completes_commands_and_their_options():
    assert completed("dbdp grant-") == {"grant-training", "grant-prediction"}
    assert {"--regularisation", "--epsilon", "--json"} <= completed("dbdp train --")
    assert completed("dbdp plot bu") == {"budget"}


def test_completing_a_command_imports_none():
    loaded = completed("dbdp grant-", "try: main()\nfinally: print(*sys.modules, sep='\\n')")
    assert "dbdp.interfaces.cli.main" in loaded
    assert not loaded & (HEAVY | {"dbdp.interfaces.cli.owner"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_script_is_shown(shell):
    if shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    script = answer("main()", _DBDP_COMPLETE=f"{shell}_source")
    assert f"_DBDP_COMPLETE={shell}_complete" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


# --- progress -------------------------------------------------------------------------------------------


def test_the_time_left_is_that_of_the_part_done_for_what_is_left():
    assert seconds_left(1, 10, 4.0) == 36.0
    assert seconds_left(9, 10, 36.0) == 4.0
    for unknown in ((0, 10, 5.0), (10, 10, 5.0), (3, None, 5.0), (3, 10, None)):
        assert seconds_left(*unknown) is None


def shown_after(clock: list[float], *reports: tuple[str, int, int]) -> str:
    """What the bar shows after reports at these times, the first of which is its start."""
    times = iter(clock)
    now = [next(times)]
    console = Terminal(width=100, force_terminal=True, color_system=None)
    columns = (progress_bar._Count(), progress_bar._Left())
    bar = Progress(*columns, console=console, get_time=lambda: now[0], auto_refresh=False)
    report = progress_bar.Bars(bar)
    for each in reports:
        now[0] = next(times)
        report(*each)
    with console.capture() as capture:
        console.print(bar.get_renderable())
    return " ".join(capture.get().split())


def test_long_epochs_have_a_time_left_from_the_first_on():
    begun = ("epoch", 0, 10)
    assert shown_after([0, 5], begun) == "0/10"
    assert shown_after([0, 5, 125], begun, ("epoch", 1, 10)) == "1/10 0:18:00 left"
    assert shown_after([0, 5, 125, 245], begun, ("epoch", 1, 10), ("epoch", 2, 10)) == "2/10 0:16:00 left"


def test_a_stage_begins_with_the_end_of_the_one_before():
    """A stage that reports its first part when done began with the one before."""
    assert shown_after([0, 60], ("update", 20, 100)) == "20/100 0:04:00 left"


def test_a_stage_that_comes_once_more_begins_anew():
    packed = ("shuffle", 0, 1), ("shuffle", 25, 50), ("shuffle", 1, 1)
    assert shown_after([0, 0, 10], *packed[:2]) == "25/50 0:00:10 left"
    assert shown_after([0, 0, 10, 20, 100, 106], *packed, *packed[:2]) == "25/50 0:00:06 left"


def test_one_statement_of_the_server_shows_no_time_left():
    assert shown_after([0, 5], ("server", 0, 1)) == ""
    assert shown_after([0, 5, 65], ("server", 0, 1), ("server", 1, 1)) == ""


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What a command writes to a terminal on stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *arguments]
    settings = os.environ | environment | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL, stderr=theirs) as running:
        os.close(theirs)
        written = b""
        while True:
            try:
                written += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert running.returncode == 0, written
    return written.decode()


def test_a_client_reports_epochs_and_the_server_a_statement(server_url, connection, registered, analyst):
    shown = on_a_terminal(
        "train", registered, "--epsilon", "0.5", "--algorithm", "bolt_on", "--epochs", "3", DBDP_URL=server_url
    )
    assert all(words in shown for words in ("shuffle", "epoch", "3/3"))
    connection.execute("select dbdp.grant_training(%s, %s)", (registered, analyst))
    reports: list[tuple[str, int, int]] = []
    with acting(connection, analyst):
        connect(connection).train(registered, Request(0.5), lambda *each: reports.append(each))
    assert reports == [("server", 0, 1), ("server", 1, 1)]
