"""Commands for an administrator: the demo, the extension on a server, the web page, the private server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from dbdp import __version__
from dbdp.interfaces.cli.click_adapter import Argument, Commands, option
from dbdp.interfaces.cli.printing import AsJson, Url, console, opened, print_line, show, show_done, show_mapping
from dbdp.optional import needing

if TYPE_CHECKING:
    from dbdp.deployment.cluster import Cluster

app = Commands()
SHORTEST_TOKEN = 32
CLONE = Path(__file__).parents[3]
PEERS = ("pandas", "matplotlib", "scipy", "dp_accounting", "interpret", "diffprivlib", "jax_privacy")
server = Commands(no_args_is_help=True, help="The private PostgreSQL of this virtual environment.")
app.add_command(server, "server")


@app.command()
def demo(url: Url = None) -> None:
    """Load Adult, train at ε = 1 in SQL and in Python, and print every step."""
    from dbdp.interfaces.cli.demo.walkthrough import run

    with opened(url) as database:
        run(database, console, elsewhere=url is not None)


@app.command()
def install(
    url: Annotated[str, option(help="libpq URL of a superuser, on the server's machine.")],
    dry_run: Annotated[bool, option("--dry-run", help="Show what would change, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy the extension's files to the server and create the extension."""
    from dbdp.deployment.extension import installer

    changes = installer.changes(url)
    if not dry_run:
        installer.install(url)
    if not as_json:
        _show_lines("would change" if dry_run else "changed", changes)
    done = "would be installed; nothing was changed" if dry_run else "is installed"
    facts = {"extension": "dbdp", "version": __version__, "changes": changes, "dry_run": dry_run}
    show_done(f"extension dbdp {__version__} {done}", as_json, **facts)


def _show_lines(title: str, lines: list[str]) -> None:
    for line in lines:
        print_line(f"{title}: {line}")


@app.command()
def uninstall(
    url: Annotated[str, option(help="libpq URL of a superuser.")],
    yes: Annotated[bool, option("--yes", help="Delete without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop the extension, with all datasets, budgets and models of that database."""
    from dbdp.deployment.extension import installer

    dropped = installer.contents(url)
    if dropped and not yes:
        _confirm(dropped, installer.remains(url))
    installer.uninstall(url)
    remains = installer.remains(url)
    if not as_json:
        _show_lines("stays", remains)
    done = "is dropped" if dropped else "was not installed"
    show_done(f"extension dbdp {done}", as_json, extension="dbdp", version=None, dropped=dropped, remains=remains)


def _confirm(dropped: dict[str, Any], remains: list[str]) -> None:
    """Print what an uninstallation deletes and what it leaves, and ask for confirmation."""
    counts = [(number, name) for name, number in dropped.items() if name != "others"]
    numbers = ", ".join(f"{number} {name.removesuffix('s') if number == 1 else name}" for number, name in counts)
    click.echo(f"This deletes {numbers} permanently; what was released stays released.", err=True)
    for each in dropped["others"]:
        click.echo(f"It also drops an object that depends on the extension: {each}", err=True)
    for each in remains:
        click.echo(f"This stays: {each}", err=True)
    click.confirm("Drop extension dbdp?", abort=True, err=True)


@app.command("follow")
def follow_table(
    source: Annotated[str, Argument("libpq URL of the hosted server.")],
    table: Annotated[str, Argument("The table there; its copy has the same name.")],
    columns: Annotated[
        str | None, option(help="Columns to copy, separated by commas, besides the key; default: all.")
    ] = None,
    status: Annotated[bool, option("--status", help="Show the state and the lag. Exit code 1 if it stopped.")] = False,
    resync: Annotated[bool, option("--resync", help="Empty the copy and copy all rows again.")] = False,
    stop: Annotated[bool, option("--stop", help="End following; the copy stays.")] = False,
    snapshot: Annotated[bool, option("--snapshot", help="Copy once, without replication.")] = False,
    owner: Annotated[
        str | None, option(help="Owner of the copy, on PostgreSQL 17 or newer; default: your role.")
    ] = None,
    passfile: Annotated[str | None, option(help="Password file on dbdp's server, of the account that runs it.")] = None,
    inserts_only: Annotated[
        bool, option("--inserts-only", help="Copy new rows only, of a table without a key.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Follow a table of a hosted PostgreSQL, where dbdp cannot be installed, on a server that has dbdp.

    The rows are copied, and changes arrive by logical replication. Run it again to go on after an interruption. On the
    command line other accounts can see a password: keep it in ~/.pgpass or PGPASSWORD, and name a --passfile.
    """
    from dbdp.deployment.following import followed_tables
    from dbdp.interfaces.python.client.connecting import default_url
    from dbdp.interfaces.python.progress_bar import progress_bar

    flags = {"status": status, "resync": resync, "stop": stop, "snapshot": snapshot}
    chosen = _only_one([name for name, flag in flags.items() if flag], owner)
    names = None if columns is None else [each.strip() for each in columns.split(",")]
    order = followed_tables.Order(source, url or default_url(), table, names, owner, passfile, inserts_only)
    if chosen == "status":
        _show_following(vars(followed_tables.status(order)), as_json)
    elif chosen == "stop":
        _show_followed(vars(followed_tables.stop(order)), as_json)
    else:
        with _explained(chosen or "follow"), progress_bar() as shown:
            done = getattr(followed_tables, chosen or "follow")(order, shown)
        _show_followed(vars(done), as_json)


def _only_one(chosen: list[str], owner: str | None) -> str:
    """Return the option that says what to do, empty without one."""
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other; pass one of them")
    if chosen not in ([], ["resync"]) and owner is not None:
        raise click.UsageError(f"--owner {owner} is for a new copy that is followed; leave it out with --{chosen[0]}")
    return "".join(chosen)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """List the reasons if a copy is refused for several, and say what an interrupted one left."""
    from dbdp.deployment.following.hosted_table import FollowError

    try:
        yield
    except FollowError as error:
        reasons = str(error).splitlines()
        if len(reasons) == 1:
            raise
        for each in reasons:
            click.echo(f"- {each}", err=True)
        raise ValueError(
            f"{len(reasons)} things are missing, and nothing was changed; run it again after that"
        ) from None
    except KeyboardInterrupt:
        left = {
            "follow": "nothing new is left on either server",
            "resync": "the copy may be incomplete and is not followed; run it with --resync again",
            "snapshot": "the former rows stay",
        }
        click.echo(f"interrupted; {left[what]}", err=True)
        raise click.exceptions.Exit(130) from None


def _show_following(state: dict[str, Any], as_json: bool) -> None:
    """Print the state of a followed table; exit code 1 if changes do not arrive."""
    show_mapping({name: value for name, value in state.items() if as_json or value is not None}, as_json, "follow")
    if state["state"] in ("stopped", "lost"):
        raise click.exceptions.Exit(1)


def _show_followed(done: dict[str, Any], as_json: bool) -> None:
    """Print what was done, warnings, and the statement that comes next."""
    rows = "" if done["rows"] is None else f", {done['rows']} rows"
    columns = f" ({', '.join(done['columns'])})" if done["columns"] else ""
    show_done(f"{done['table']}{columns} {done['done']}{rows}", as_json, **done)
    if as_json:
        return
    for each in done["warnings"]:
        click.echo(f"warning: {each}", err=True)
    if done["next"]:
        print_line("next, on the dbdp server, with public facts instead of the capitals:")
        print_line(done["next"])


@app.command()
def web(
    port: Annotated[int, option(type=click.IntRange(0, 65535), help="0 chooses a free port.")] = 8433,
    host: Annotated[str, option(help="An address of this machine: 127.0.0.1 or ::1.")] = "127.0.0.1",
    opening: Annotated[bool, option("--open", help="Open the page in your browser.")] = False,
    metrics: Annotated[bool, option("--metrics", help="Serve statistics for Prometheus at /metrics.")] = False,
    url: Url = None,
) -> None:
    """Serve a page of datasets, budgets, models and trainings on this machine, for who opens its one-time link."""
    with needing("dbdp web"):
        from dbdp.interfaces.web.serving import serve
    from dbdp.interfaces.python.client.connecting import default_url

    serve(url or default_url(), host, port, print_line, opening=opening, metrics_token=_token() if metrics else "")


def _token() -> str:
    """Return the token for /metrics, which is an environment variable, as other accounts can read command lines."""
    token = os.environ.get("DBDP_METRICS_TOKEN", "")
    if len(token) < SHORTEST_TOKEN:
        raise ValueError(
            f"DBDP_METRICS_TOKEN has {len(token)} characters, and --metrics needs {SHORTEST_TOKEN} at least; "
            "draw them: export DBDP_METRICS_TOKEN=$(openssl rand -hex 32)"
        )
    return token


@app.command()
def doctor(as_json: AsJson = False, url: Url = None) -> None:
    """Check this machine and a server, and print remedies. Exit code 1 if there is a fault."""
    from dbdp.deployment.doctor import FAULT, examine

    findings = examine(url)
    if as_json:
        show([vars(each) for each in findings], True, "")
    else:
        show(
            [{"check": each.check, "state": each.state, "found": _one_line(each.found)} for each in findings],
            False,
            "doctor",
        )
        for each in findings:
            if each.remedy:
                print_line(f"{each.check}: {_one_line(each.remedy)}")
    if any(each.state == FAULT for each in findings):
        raise click.exceptions.Exit(1)


@app.command("confirm-roles")
def confirm_roles(
    every: Annotated[bool, option("--all", help="Confirm each that has a role of its name here.")] = False,
    former: Annotated[str | None, option("--role", help="Confirm this one: its name in the dump.")] = None,
    now: Annotated[str | None, option("--as", help="With --role: its name here; default the same.")] = None,
    retired: Annotated[str | None, option("--retire", help="End the rights of this one: no role here is it.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the roles of a restored dump that have no rights yet, or confirm which roles they are."""
    if now is not None and former is None:
        raise ValueError(f"--as {now} needs the name in the dump; add --role, or leave it out")
    with opened(url) as database:
        if every:
            for row in [row for row in database.unconfirmed_roles() if row["is_role_here"]]:
                database.confirm_role(row["identity"], row["role_name"])
        if former is not None:
            database.confirm_role(former, now)
        if retired is not None:
            database.retire_role(retired)
        show(database.unconfirmed_roles(), as_json, "roles without rights")


def _one_line(text: str) -> str:
    return " ".join(text.split())


@app.command()
def reproduce(
    figure: Annotated[str | None, option(help="Figures, separated by commas; default: all.")] = None,
    dataset: Annotated[str | None, option(help="Only these tables, such as adult,bank.")] = None,
    repeats: Annotated[int | None, option(help="Random splits of each table.")] = None,
    minutes: Annotated[
        float | None, option(help="End after this many minutes; default: 18, with --full no limit.")
    ] = None,
    grid: Annotated[bool, option("--grid", help="All values of every grid, on the small run's rows.")] = False,
    full: Annotated[bool, option("--full", help="All of every grid, all rows: days.")] = False,
    listed: Annotated[bool, option("--list", help="List the figures, and end.")] = False,
) -> None:
    """Train the papers' experiments again, in a clone of the source. Resumes an interrupted run."""
    given = {"--figure": figure, "--dataset": dataset, "--repeats": repeats, "--minutes": minutes}
    values = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    flags = [name for name, value in {"--grid": grid, "--full": full, "--list": listed}.items() if value]
    _check_clone()
    command = [sys.executable, "-m", "benchmarks.reproduce", *values, *flags]
    sys.exit(subprocess.call(command, cwd=CLONE))


def _check_clone() -> None:
    """Raise ValueError if the experiments are not here, or the packages that they are measured with are not."""
    if not (CLONE / "benchmarks" / "reproduce").is_dir():
        raise ValueError("the experiments are not part of the installed package; run make reproduce in a clone of dbdp")
    if missing := [name for name in PEERS if find_spec(name) is None]:
        raise ValueError(f"the experiments need {', '.join(missing)}; run pip install -e '.[accuracy]' in {CLONE}")


@server.command("start")
def server_start(as_json: AsJson = False) -> None:
    """Start the private server, and create it first if necessary."""
    cluster = _started()
    show_done(cluster.url, as_json, url=cluster.url)


@server.command("stop")
def server_stop() -> None:
    """Stop the private server. Its data stays."""
    _cluster().stop()
    click.echo("the private server is stopped", err=True)


@server.command("status")
def server_status(as_json: AsJson = False) -> None:
    """Show whether the private server runs, and its address."""
    show_mapping(_cluster().status(), as_json, "private server")


@server.command("url")
def server_url(as_json: AsJson = False) -> None:
    """Print the private server's URL."""
    url = _cluster().url
    show_done(url, as_json, url=url)


@server.command("psql", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def server_psql() -> None:
    """Open psql on the private server. Further arguments are passed to psql."""
    sys.exit(_started().psql(click.get_current_context().args))


def _started() -> "Cluster":
    """Start the private server if needed and return it; print a line first, since starting may take a minute."""
    cluster = _cluster()
    if not cluster.status()["running"]:
        click.echo("starting the private server; the first time takes a minute", err=True)
    cluster.start()
    return cluster


def _cluster() -> "Cluster":
    from dbdp.deployment.cluster import Cluster

    return Cluster.default()
