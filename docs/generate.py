"""Writes the pages of docs/reference/ that are generated: `make reference`.

sql.md comes from the catalogue of a server with the extension, options.md from dbdp.controller.training_options,
commands.md from the command line itself, python.md from the names of the package. The site fetches their docstrings.
attacks.md comes from the tests, by docs/attacks.py, which needs no server.
"""

import re
import runpy
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import dbdp
from dbdp.algorithms import ALGORITHMS
from dbdp.algorithms.catalogue import algorithms_with
from dbdp.algorithms.declared_options import COMMON, Limits, declared, shown
from dbdp.controller.training_options import _literal, description_of, options
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.database import Database

FOLDER = Path(__file__).parent / "reference"
INTERNAL = "internal: "  # prefix of the comments of internal functions
REFUSES = "refuses: "  # and of those that are there for a better message than PostgreSQL's
WORK_OF = "internal: the work of "  # and of those that have a public function with the same parameters
GROUPS = {
    "dbdp_predictor": "For applications",
    "dbdp_analyst": "For analysts",
    "dbdp_data_owner": "For data owners",
}
FUNCTIONS = """
select p.pronamespace::regnamespace::text as schema,
       p.proname as name,
       p.prokind::text as kind,
       pg_catalog.obj_description(p.oid, 'pg_proc') as comment,
       array(
         select case when a.grantee = 0 then 'everybody' else a.grantee::regrole::text end
         from aclexplode(p.proacl) as a
         where a.grantee <> p.proowner
         order by 1
       ) as roles,
       array(
         select json_build_array(
           coalesce(p.proargmodes[n], 'i'),
           coalesce(p.proargnames[n], ''),
           format_type(type, null),
           pg_get_function_arg_default(p.oid, n::int))
         from unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality as t(type, n)
         order by n
       ) as arguments,
       p.proretset as many,
       format_type(p.prorettype, null) as result
from pg_proc as p
where p.pronamespace in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
order by p.proname, p.oid::regprocedure::text collate "C"
"""
RELATIONS = """
select c.relname as name,
       c.relkind::text as kind,
       coalesce(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type')) as comment,
       array(
         select a.grantee::regrole::text
         from aclexplode(c.relacl) as a
         where a.grantee not in (0, c.relowner) and a.privilege_type = 'SELECT'
         order by 1
       ) as roles,
       array(
         select json_build_array(a.attname, format_type(a.atttypid, a.atttypmod))
         from pg_attribute as a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         order by a.attnum
       ) as columns
from pg_class as c
where c.relnamespace = 'dbdp'::regnamespace and c.relkind in ('r', 'v', 'c')
order by c.relname
"""


def sql_page(database: Database) -> str:
    """Return the reference of functions, views and tables.

    Raises
    ------
    ValueError
        If one of them has no comment.
    """
    functions, relations = database.query(FUNCTIONS), database.query(RELATIONS)
    if bare := [each["name"] for each in functions + relations if not each["comment"]]:
        raise ValueError(f"without a comment in sql/: {', '.join(bare)}")
    parts = ["# SQL reference", _preamble("the comments, types and privileges in the catalogue of a server")]
    parts += ["Each role has the privileges of those before it: `dbdp_predictor`, `dbdp_analyst`, `dbdp_data_owner`."]
    parts += ["A required parameter has the default null, which the function refuses by its name."]
    open_ones = [each for each in functions if each["schema"] == "dbdp" and not each["comment"].startswith(REFUSES)]
    for role, title in GROUPS.items():
        parts += [f"## {title}", *_functions(each for each in open_ones if role in each["roles"])]
    parts += ["## Views", *(_relation(each) for each in relations if each["kind"] == "v")]
    parts += ["## Types of results", *(_relation(each) for each in relations if each["kind"] == "c")]
    parts += [
        "## Tables",
        "Views and functions read these. Use the views: their columns stay the same in later versions.",
    ]
    parts += [_relation(each) for each in relations if each["kind"] == "r"]
    parts += [
        "## Internal functions",
        "Functions of `dbdp` and its clients call these. They may change with any version.",
    ]
    parts += ["For each function above that can refuse, `dbdp_internal.try_NAME` does the work: see `accepted`."]
    internal = (each for each in functions if each["schema"] != "dbdp")
    parts += _functions(each for each in internal if not each["comment"].startswith(WORK_OF))
    return "\n\n".join(parts) + "\n"


def _preamble(source: str) -> str:
    return f"Generated from {source} (`make reference`). A test compares this page with it."


def _functions(functions: Any) -> Iterator[str]:
    """Yield an entry for each name, with the comments of all versions of a function."""
    for name, versions in groupby(functions, lambda each: each["name"]):
        yield f"### {name}"
        for (comment, roles), same in groupby(versions, lambda each: (each["comment"], each["roles"])):
            signatures = "\n".join(_signature(each) for each in same)
            nobody = "only `dbdp_owner`" if roles else "only superusers"
            allowed = ", ".join(f"`{role}`" for role in roles if role != "dbdp_owner") or nobody
            yield f"{_sentence(comment)}\n\n```text\n{signatures}\n```\n\nMay call: {allowed}."


def _sentence(comment: str) -> str:
    text = comment.removeprefix(INTERNAL)
    is_name = "_" in text.split()[0]
    return (text[0] if is_name else text[0].upper()) + text[1:].rstrip(".") + "."


def _signature(function: dict[str, Any]) -> str:
    """Write a function with its arguments and results."""
    given = [_argument(*rest) for mode, *rest in function["arguments"] if mode != "o"]
    results = [f"{name} {kind}" for mode, name, kind, _ in function["arguments"] if mode == "o"]
    result = f"({_listed(results)})" if results else function["result"]
    many = "setof " if function["many"] else ""
    kind = "aggregate " if function["kind"] == "a" else ""
    return f"{kind}{function['schema']}.{function['name']}({_listed(given)}) returns {many}{result}"


def _listed(items: list[str]) -> str:
    """Write a list on one line, or one item on a line where there are several."""
    return ", ".join(items) if len(items) < 4 else "\n    " + ",\n    ".join(items) + "\n"


def _argument(name: str, kind: str, default: str | None) -> str:
    plain = None if default is None else re.sub(r"::[\w \[\]\"]+$", "", default)
    return f"{name} {kind}".strip() + (f" default {'null' if plain == 'NULL' else plain}" if plain else "")


def _relation(relation: dict[str, Any]) -> str:
    lines = "\n".join(f"| `{name}` | {kind} |" for name, kind in relation["columns"])
    roles = ", ".join(f"`{role}`" for role in relation["roles"] if role != "dbdp_owner")
    may = f"\n\nMay select, as far as row-level security shows: {roles}." if roles else ""
    return f"### {relation['name']}\n\n{_sentence(relation['comment'])}\n\n| column | type |\n|---|---|\n{lines}{may}"


def options_page() -> str:
    """Return the page of training options."""
    lines = [
        f"| `{each.name}` | {kind.__name__} | {_default(each.default)} | {description_of(each.name)} |"
        for each, kind in options()
    ]
    return f"""# Training options

{_preamble("`dbdp.controller.training_options`")}

You use the same names in every interface: SQL functions (`step_size => 0.5`), commands (`--step-size 0.5`),
estimators (`step_size=0.5`) and `dbdp.Request`. If a default is *algorithm-dependent*, the algorithm fills it in. You
see the values with `dbdp.dp_explain`, and the reasons in [Algorithms](../algorithms.md).

| option | type | default | |
|---|---|---|---|
{chr(10).join(lines)}

## By algorithm

Every algorithm has {_names(COMMON)}.
It also has the options in its line. If values follow in brackets, it accepts only those. Other options are
refused before the charge, unless you pass the default.

| algorithm | options |
|---|---|
{chr(10).join(_algorithm(name) for name in ALGORITHMS)}

## Settings of one algorithm

Pass them in `settings`, as a JSON object.

| setting | algorithms | default | range | |
|---|---|---|---|---|
{chr(10).join(_own_settings())}
"""


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _algorithm(name: str) -> str:
    """Return the line of an algorithm: its options, with their values where only some are accepted."""
    own = ALGORITHMS[name].OPTIONS
    shown = [
        f"`{each.name}`" + (f" ({_names(values)})" if (values := own.values.get(each.name)) else "")
        for each, _ in options()
        if own.values.get(each.name) or (own.has(each.name) and (each.name in own.values or each.name not in COMMON))
    ]
    return f"| `{name}` | {', '.join(shown)} |"


def _own_settings() -> Iterator[str]:
    """Give a line for each setting, with the algorithms that share it."""
    owners: dict[tuple[str, Any, Limits], list[str]] = {}
    for algorithm in algorithms_with("settings"):
        kind = ALGORITHMS[algorithm].OPTIONS.own_settings
        for name, (default, limits) in declared(kind).items() if kind else ():
            owners.setdefault((name, default, limits), []).append(algorithm)
    for (name, default, limits), algorithms in owners.items():
        yield f"| `{name}` | {_names(algorithms)} | {shown(default)} | {limits.text} | {limits.meaning} |"


def _default(value: Any) -> str:
    if value is None:
        return "*algorithm-dependent*"
    return "required" if not isinstance(value, str | int | float) else f"`{_literal(value)}`"


def commands_page() -> str:
    """Return the reference of the command line."""
    parts = ["# Commands", _preamble("the command line's own help") + " `dbdp COMMAND --help` shows the same."]
    parts += [app.epilog] if app.epilog else []
    return "\n\n".join([*parts, *_commands(app, "dbdp")]) + "\n"


def _commands(command: Any, name: str) -> Iterator[str]:
    """Give an entry for each command of a group, and of the groups within."""
    for word in sorted(command.list_commands(None)):
        each = command.get_command(None, word)
        if hasattr(each, "list_commands"):
            yield from _commands(each, f"{name} {word}")
        else:
            yield _command(each, f"{name} {word}")


def _command(command: Any, name: str) -> str:
    shared = {each.name for each, _ in options()}
    takes_a_request = shared <= {each.name for each in command.params}
    own = [each for each in command.params if not (takes_a_request and each.name in shared)]
    arguments = [each for each in own if each.param_type_name == "argument"]
    usage = " ".join([name, *(_usage(each) for each in arguments), "[OPTIONS]" if len(own) > len(arguments) else ""])
    rows = "\n".join(_option(each) for each in own if each not in arguments)
    table = f"\n\n| option | default | |\n|---|---|---|\n{rows}" if rows else ""
    more = "\n\nIt also takes all [training options](options.md)." if takes_a_request else ""
    return f"## {name}\n\n{command.help}\n\n```text\n{usage.strip()}\n```{table}{more}"


def _usage(argument: Any) -> str:
    return argument.name.upper() if argument.required else f"[{argument.name.upper()}]"


def _option(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts])
    default = f"`{option.default}`" if option.default not in (None, (), []) and not option.is_flag else ""
    return f"| {flags} | {'required' if option.required else default} | {option.help or ''} |"


def python_page() -> str:
    """Return the reference of Python, to be filled from docstrings."""
    places = [
        *(f"{module}.{name}" for name, module in dbdp._PLACES.items()),
        "dbdp.registry.results.models.ReleasedModel",
    ]
    entries = "\n\n".join(f"::: {place}" for place in places)
    return f"""# Python reference

{_preamble("the names of the package and their docstrings")} `import dbdp` gives you all of these names except
`ReleasedModel`, which training returns. The keywords of the estimators and of `Request` are the
[training options](options.md).

{entries}
"""


def generated(database: Database) -> dict[Path, str]:
    """Return the content of each generated page."""
    return {
        FOLDER / "sql.md": sql_page(database),
        FOLDER / "options.md": options_page(),
        FOLDER / "commands.md": commands_page(),
        FOLDER / "python.md": python_page(),
        FOLDER / "attacks.md": runpy.run_path(str(FOLDER.with_name("attacks.py")))["page"](),
    }


if __name__ == "__main__":
    with dbdp.connect() as private:
        for path, content in generated(private).items():
            path.write_text(content, encoding="utf-8")
