"""Renders the scripts of the extension from the parts in sql/, with the bodies of the functions."""

import re
from pathlib import Path

from dbdp import __version__
from dbdp.deployment.extension.source import MADE_ONCE, SOUND_OBJECTS, ExtensionSource
from dbdp.sessions.connections import PATH

BODY = re.compile(r"@plpython (\w+)\.(\w+)@")  # a module of dbdp.interfaces.sql, and its function
# A function that refuses, see sql/functions/0-refusals.sql: schema, name, parameters, result, settings, body.
REFUSING = re.compile(
    r"create or replace function (dbdp(?:_internal)?)\.(\w+)\(((?:(?!\$body\$).)*?)\)( returns [^\n]+)?\n"
    r"language plpython3u((?:(?!\$body\$).)*?)\nas \$body\$\n@refusing (\w+\.\w+)@\n\$body\$;\n",
    re.DOTALL,
)
PAIR = """create or replace function dbdp_internal.try_{name}{signature}
language plpython3u{settings}
as $body$
@plpython {body}@
$body$;
comment on function dbdp_internal.try_{name}({types}) is
'internal: the work of {schema}.{name}; a refusal is left to accepted';
create or replace function {schema}.{name}{signature}
language sql {is_called}
set search_path = pg_catalog, pg_temp
as $body$
select answer.* from dbdp_internal.try_{name}({numbers}) as answer where dbdp_internal.accepted()
$body$;
"""
PARAMETER = re.compile(r"(?:'[^']*'|[^',])+")  # no type in sql/ has a comma
# What is written once for several functions: names, rows of their values (a;b of c, d), and the script.
EACH = re.compile(r"@each ([\w, ]+):\s*((?:(?!do@).)*?)\s*do@\n((?:(?!@each ).)*?)@end@\n", re.DOTALL)
OPTIONS = re.compile(r"@options(?: without ([\w ]+))?@")  # the options of a training (`controller.training_options`)
# If an earlier version of the extension is in another schema, an update would look names up there.
PINNED = f"set local search_path = {PATH};\n\n"


def render_extension(python_directory: Path, source: ExtensionSource | None = None) -> dict[str, str]:
    """Return the control file and the scripts of the extension: one that creates it, one from each earlier version."""
    source = source or ExtensionSource.installed()
    control = (source.sql / "dbdp.control").read_text()
    parts = {name: _with_bodies(part, source) for name, part in source.parts().items()}
    files = {"dbdp.control": control, f"dbdp--{__version__}.sql": "\n".join(parts.values())}
    again = [script for name, script in parts.items() if name not in (SOUND_OBJECTS, *MADE_ONCE)]
    for version, migrations in _migrations(source).items():
        last = (source.sql / "upgrade" / "after.sql").read_text()
        files[f"dbdp--{version}--{__version__}.sql"] = "\n".join([*migrations, *again, last])
    for name in files.keys() - {"dbdp.control"}:
        files[name] = f"{PINNED}{files[name]}"
    values = {"@python_directory@": str(python_directory), "@version@": __version__}
    for mark, value in values.items():
        files = {name: content.replace(mark, value) for name, content in files.items()}
    return files


def _migrations(source: ExtensionSource) -> dict[str, list[str]]:
    """Return, for each earlier version, what comes before an update, and the hand-written steps from it, in order.

    A step, sql/upgrade/<from>--<to>.sql, changes what the parts in MADE_ONCE created, and retires the functions whose
    arguments or results changed; the other parts are run again after the last step, and then after.sql.
    """
    steps = {path.stem.partition("--")[0]: path.read_text() for path in (source.sql / "upgrade").glob("*--*.sql")}
    versions = sorted(steps, key=lambda version: [int(number) for number in version.split(".")])
    first = [source.sql / "upgrade" / "before.sql", source.sql / SOUND_OBJECTS] if steps else []
    return {
        version: [*(part.read_text() for part in first), *(steps[later] for later in versions[place:])]
        for place, version in enumerate(versions)
    }


def _with_bodies(part: Path, source: ExtensionSource) -> str:
    from dbdp.controller.training_options import sql_parameters
    from dbdp.registry import registration

    body = (source.plpython / "body.py").read_text().replace("@version@", __version__)
    script = part.read_text().replace("@registration@", registration.sql_parameters())
    script = OPTIONS.sub(lambda mark: sql_parameters(without=tuple((mark[1] or "").split())), script)
    while EACH.search(script):
        script = EACH.sub(_repeated, script)  # the innermost first

    def calling(mark: re.Match[str]) -> str:
        return body.replace("@module@", mark[1]).replace("@function@", mark[2])

    return BODY.sub(calling, REFUSING.sub(_pair, script))


def _repeated(section: re.Match[str]) -> str:
    """Return a section once for each row of values, with `@NAME@` replaced by the value."""
    names = section[1].split(", ")
    scripts = []
    for row in section[2].split(";"):
        script = section[3]
        for name, value in zip(names, row.strip().split(", "), strict=True):
            script = script.replace(f"@{name}@", value)
        scripts.append(script)
    return "\n".join(scripts)


def _pair(function: re.Match[str]) -> str:
    """Return the pair of a function that refuses: dbdp_internal.try_NAME in PL/Python, and the one that calls it."""
    schema, name, written, result, settings, body = function.groups()
    defaulted = [_with_default(each) for each in PARAMETER.findall(written)]
    passed = [each for each in defaulted if not each.strip().startswith("out ")]
    parameters = ",".join(defaulted)
    types = ", ".join(each.split()[1] for each in passed)
    numbers = ", ".join(f"${number}" for number, _ in enumerate(passed, start=1))
    is_called = " ".join(re.findall(r"\b(?:stable|parallel safe)\b", settings))
    return PAIR.format(
        schema=schema,
        name=name,
        signature=f"({parameters}){result or ''}",
        settings=settings,
        body=body,
        types=types,
        is_called=is_called,
        numbers=numbers,
    )


def _with_default(parameter: str) -> str:
    """Return a parameter with the default null, which the function refuses by name, unless it has one or is a result.

    PostgreSQL would say of a call without it that there is no such function; and that there are two, if the model had a
    default as a number and as a name.
    """
    written = parameter.strip()
    if " default " in parameter or written in ("", "model text") or written.startswith("out "):
        return parameter
    return parameter.rstrip() + " default null" + parameter[len(parameter.rstrip()) :]
