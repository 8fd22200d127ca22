"""The command line `dbdp`, by click.

A command's module is imported when the command is called. NumPy, psycopg and rich are not imported here, so that the
shell's completion and short commands are fast.
"""

import gc
import logging
import re
import sys
import traceback
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import click

from dbdp import __version__
from dbdp.interfaces.cli.click_adapter import Commands, option
from dbdp.interfaces.cli.index import PLACES, SUMMARIES
from dbdp.interfaces.plain import plain, plain_output

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_CODES = (
    "Exit codes: 0 success, 1 refused or failed (the last line on stderr has the reason) or a fault that the doctor "
    "reports, 2 wrong usage, 3 ledger, odometers or limits do not agree, 130 interrupted by Ctrl-C (charges stay)."
)
_REMEDY = (
    "; an administrator can grant to this role dbdp_data_owner (registers tables and grants training), dbdp_analyst "
    "(trains where it was granted) or dbdp_predictor, and the owner of a table: select"
)


_SURPLUS = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.+)\)")


class _Commands(Commands):
    """Loads a command of `dbdp.interfaces.cli.index` when it is called; lists these before those of `app` itself.

    All that is printed meanwhile is plain text, whoever prints it.
    """

    _is_listing = False  # while the help lists the commands, which then need not be imported

    def main(self, *arguments: Any, **settings: Any) -> Any:
        with plain_output():
            return super().main(*arguments, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*PLACES, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PLACES:
            return super().get_command(ctx, cmd_name)
        if self._is_listing:
            return click.Command(cmd_name, short_help=SUMMARIES[cmd_name])
        module = import_module(f"dbdp.interfaces.cli.{PLACES[cmd_name]}")
        return module.app.get_command(ctx, cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._is_listing = True
        super().format_help(ctx, formatter)
        self._is_listing = False

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        self._is_listing = True
        completions = super().shell_complete(ctx, incomplete)
        self._is_listing = False
        return completions

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            from dbdp.algorithms.words import OTHERS

            word = error.option_name.lstrip("-").replace("-", "_")
            if word not in OTHERS:
                raise
            raise click.UsageError(f"No such option {error.option_name!r}: {OTHERS[word][1]}", error.ctx) from None
        except click.UsageError as error:
            remedy = _option_meant(error)
            if not remedy:
                raise
            raise click.UsageError(f"{error.message}{remedy}", error.ctx) from None
        except KeyboardInterrupt:
            click.echo("interrupted; charges stay", err=True)
            raise click.exceptions.Exit(130) from None


def _option_meant(error: click.UsageError) -> str:
    """Return the remedy for a word that is passed without the name of its option; nothing for another error."""
    surplus = _SURPLUS.match(error.message)
    if surplus is None or error.ctx is None:
        return ""
    word = surplus[1].split()[0]
    for each in error.ctx.command.params:
        if word in re.findall(r"[\w-]+", getattr(each, "help", None) or ""):
            return f"; pass it by its option, {each.opts[0]} {word}"
    return f"; options have names, see `{error.ctx.command_path} --help`"


app = _Commands(
    no_args_is_help=True,
    context_settings={"max_content_width": 120},
    epilog=EXIT_CODES,
    help="Differentially private machine learning in PostgreSQL.",
)


@app.command()
def version(as_json: Annotated[bool, option("--json", help="Print JSON.")] = False) -> None:
    """Print the version."""
    print(f'{{"version": "{__version__}"}}' if as_json else __version__)


def main() -> None:
    """Run the command line; print an error of dbdp in one line and exit with code 1."""
    gc.set_threshold(50_000)  # imports make no garbage: by default a tenth of a short command's time is looking for it
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # it warns of the statement that Ctrl-C interrupts
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    with plain_output():
        try:
            app()
        except Exception as error:
            _show_error(error)
            sys.exit(1)


def _show_error(error: Exception) -> None:
    """Print an error of dbdp in one line; of any other, which is a fault of dbdp, also where it arose."""
    if not isinstance(error, _refusals()):
        traceback.print_exception(error)
        return
    from rich.text import Text

    from dbdp.interfaces.terminal import Terminal

    Terminal(stderr=True).print(Text.assemble(("error:", "red"), " ", _one_line(error)), soft_wrap=True)


def _show_warning(message: Warning | str, *_: Any) -> None:
    """Print a warning in one line, without the place in the code."""
    click.echo(f"warning: {' '.join(str(message).split())}", err=True)


def _refusals() -> tuple[type[Exception], ...]:
    """Return the types of errors that are shown without a traceback; psycopg's only if a command imported it."""
    psycopg = sys.modules.get("psycopg")
    return (ValueError, OSError, RuntimeError, *([psycopg.Error] if psycopg else []))


def _one_line(error: Exception) -> str:
    """Return an error's text on one line, with the hint of PostgreSQL, or ours for a missing right."""
    from dbdp.sessions.errors import PREFIX

    diagnosis = getattr(error, "diag", None)
    text = getattr(diagnosis, "message_primary", None) or str(error).strip()
    hint = getattr(diagnosis, "message_hint", None) or ""
    if diagnosis and text.startswith("permission denied for"):
        hint = _REMEDY
    lines = f"{text.removeprefix(PREFIX)}\n{hint.removeprefix(';')}".splitlines()
    return plain("; ".join(filter(None, (" ".join(line.split()) for line in lines))))


if __name__ == "__main__":
    main()
