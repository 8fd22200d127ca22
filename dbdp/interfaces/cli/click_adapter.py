"""Commands of click from annotated functions.

typer would do this too, but it builds a pydantic model of each parameter: a quarter of the processor time of
`dbdp datasets`.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import click

from dbdp.checks import nearest

Function = TypeVar("Function", bound=Callable[..., None])
_TYPES = {Path: click.Path(path_type=Path), int: click.INT, float: click.FLOAT, str: click.STRING}


class Argument(NamedTuple):
    """Marks a parameter of a function as an argument of the command, with this help."""

    help: str | None = None


class Option(NamedTuple):
    """Marks a parameter of a function as an option of the command."""

    flags: tuple[str, ...]  # its flags; without any its name, and for a bool also `--no-` and its name
    # Settings of click's option. `help` may be a function, which is called when the help is read.
    settings: dict[str, Any]


def option(*flags: str, **settings: Any) -> Option:
    """Return an option with these flags and settings."""
    return Option(flags, settings)


def with_options(
    keyword: str, added: Sequence[inspect.Parameter], record: Callable[..., Any], *, first: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of a command, for which a record of further options becomes one keyword."""
    names = {each.name for each in added}

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**values: Any) -> None:
            own = {name: value for name, value in values.items() if name not in names}
            command(**own, **{keyword: record(**{name: values[name] for name in values.keys() & names})})

        known = inspect.signature(command).parameters
        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in known.items() if name != keyword]
        place = list(known).index(keyword) if first else len(own)
        parameters = [*own[:place], *added, *own[place:]]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        return call

    return decorated


class Commands(click.Group):
    """A group of commands, each of which is built from its function when it is looked up."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._functions: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {}

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:  # type: ignore[override]
        """Return a decorator that adds a function as a command, by default of its own name, and leaves it as it is."""

        def added(function: Function) -> Function:
            self._functions[name or function.__name__] = function, settings
            return function

        return added

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(dict.fromkeys([*self._functions, *self.commands]))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command of the first word; fail with the most similar name if there is none."""
        names = self.list_commands(ctx)
        if args[0] not in names:
            group = f"dbdp {ctx.info_name}" if ctx.parent else "dbdp"
            ctx.fail(f"No such command {args[0]!r}{nearest(args[0], names) or f'; see `{group} --help`'}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name; None if there is none."""
        if cmd_name in self._functions and cmd_name not in self.commands:
            function, settings = self._functions[cmd_name]
            self.add_command(_command(cmd_name, function, settings))
        return super().get_command(ctx, cmd_name)


def _command(name: str, function: Callable[..., None], settings: dict[str, Any]) -> click.Command:
    parameters = [_parameter(each) for each in inspect.signature(function).parameters.values()]
    return click.Command(name, callback=function, params=parameters, help=inspect.getdoc(function), **settings)


class _Option(click.Option):
    """An option whose help may be a function, which is called when the help is read."""

    def __init__(self, *names: Any, help: str | Callable[[], str] | None = None, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self._help = help

    @property
    def help(self) -> str | None:
        return self._help() if callable(self._help) else self._help

    @help.setter
    def help(self, value: str | None) -> None:
        self._help = value


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    """Return the option or argument of a parameter: an option if it has a default or an `Option`."""
    required = parameter.default is parameter.empty
    annotation, how = parameter.annotation, Argument() if required else option()
    if get_origin(annotation) is Annotated:
        annotation, how = get_args(annotation)
    kinds = [each for each in get_args(annotation) if each is not NoneType]
    kind = kinds[0] if NoneType in get_args(annotation) else annotation  # T of `T | None`
    common: dict[str, Any] = {"required": True} if required else {"default": parameter.default}
    if isinstance(how, Argument):
        return click.Argument([parameter.name], type=_TYPES[kind], help=how.help, **{"required": False} | common)
    flags = how.flags or _flags(parameter.name, kind is bool)
    return _Option([*flags, parameter.name], **common, **_values(kind) | how.settings)


def _flags(name: str, is_bool: bool) -> tuple[str, ...]:
    flag = name.replace("_", "-")
    return (f"--{flag}/--no-{flag}",) if is_bool else (f"--{flag}",)


def _values(kind: Any) -> dict[str, Any]:
    """Return the settings of an option's values: a flag, one value, a tuple, or a list that repeated flags fill."""
    if kind is bool:
        return {"is_flag": True}
    if get_origin(kind) is tuple:
        return {"type": get_args(kind), "nargs": len(get_args(kind)), "show_default": True}
    if get_origin(kind) is list:
        return {"type": _TYPES[get_args(kind)[0]], "multiple": True, "callback": _as_list, "show_default": True}
    return {"type": _TYPES[kind], "show_default": True}


def _as_list(context: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> list[Any] | None:
    """Return the values of a repeated option; None without any."""
    return list(values) or None
