"""Text that becomes SQL is written in the source, word for word; what is put into it is quoted, or a constant.

Values are parameters. A name is quoted by psycopg.sql, or came from the server as `quote_ident`, `regclass` or
`%I` made it; where a module cannot import psycopg, since the server runs it, QUOTED says so for each function.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dbdp

pytestmark = pytest.mark.security

PACKAGE = Path(dbdp.__file__).parent
TREES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
VERBS = (
    "select|insert|update|delete|create|drop|alter|grant|revoke|lock|truncate|with|copy|set|reset|do|begin|commit|"
    "savepoint|rollback|call|comment|vacuum|analyze|listen|notify|prepare|execute|deallocate|declare|fetch|values"
)
SQL = re.compile(rf"\s*(?:--.*\n\s*)*(?:{VERBS})\b[\s(]", re.IGNORECASE)
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*(\.[A-Z][A-Z0-9_]*)?")
JOINING = ("format", "replace", "join", "format_map")
SENDING = ("query", "execute", "stream", "batches_of", "control", "copy", "exec_driver_sql", "executemany")

_TEMPORARY = "a name in pg_temp that dbdp made of hexadecimal digits"
_OF_SERVER = "of regclass, format_type or quote_ident of the server"
_FOR_PEOPLE = "shown and not sent; names are of quote_ident or listed in the module"
_NUMBERS = "one of two words, and numbers"
_EXPORTED = "printed and not sent; its parts are quoted there"
_MESSAGE = "a message for people, which begins like a statement"
QUOTED = {
    "sessions.inside.advisory_locks._counted": _NUMBERS,
    "sessions.inside.advisory_locks._hold": _NUMBERS,
    "sessions.inside.advisory_locks._lock": _NUMBERS,
    "deployment.bootstrap._ensure_project": "a message for people, of packages",
    "registry.spending.budgets._periods": "a condition written in the module",
    "registry.datasets.count": _OF_SERVER,
    "packing.grouping.distribute": _TEMPORARY,
    "deployment.extension.script._pair": "a function in sql/, which the script has twice",
    "deployment.doctor.ExaminedServer.value": "a query written in the module",
    "deployment.doctor._subscriptions": _FOR_PEOPLE,
    "deployment.following.followed_tables._next": _FOR_PEOPLE,
    "deployment.following.source_checks._remedy_of_identity": _FOR_PEOPLE,
    "deployment.following.source_checks.refusals_of_rows": _FOR_PEOPLE,
    "deployment.following.subscriber_checks.refusals_of_subscriber": _FOR_PEOPLE,
    "deployment.doctor._roles": _FOR_PEOPLE,
    "deployment.doctor._rights": _FOR_PEOPLE,
    "deployment.doctor._own_rights": _FOR_PEOPLE,
    "algorithms.declared_options.Options.refusal": _MESSAGE,
    "learning.losses.loss_named": _MESSAGE,
    "registry.spending.names.revoke": _MESSAGE,
    "registry.spending.rights.revoke_prediction": _MESSAGE,
    "registry.spending.rights.revoke_training": _MESSAGE,
    "deployment.inventory.foreign": _FOR_PEOPLE,
    "deployment.doctor._writers": _FOR_PEOPLE,
    "registry.results.stored_summaries.StoredSummary._check": _MESSAGE,
    "registry.results.exporting.sql_dialects._PostgreSQL.definition": _EXPORTED,
    "registry.results.exporting.sql_dialects._DuckDB.definition": _EXPORTED,
    "sessions.support._remedy": _FOR_PEOPLE,
    "sessions.connections": "settings named in the module, and their numbers",
    "deployment.doctor._transactions": _FOR_PEOPLE,
    "deployment.doctor._memory": _FOR_PEOPLE,
    "deployment.doctor._set_system": _FOR_PEOPLE,
    "packing.progress.fill": _TEMPORARY,
    "registry.spending.odometers.Account.set": "one of two words, and a number",
    "registry.spending.odometers.create": "one of two words, and a number",
    "registry.spending.odometers.read": "one of two words, and a number",
    "packing.packer._group_of": _TEMPORARY,
    "packing.writers.BlockWriter.__init__": _TEMPORARY,
    "packing.packer._Packing._read_group": _TEMPORARY,
    "packing.packer._Packing._read": _TEMPORARY,
    "packing.packer._Packing._read_from": _TEMPORARY,
    "controller.packed_rows.Slice.value": f"{_TEMPORARY}; the call of an aggregate is a constant of the module",
    "controller.packed_rows.PackedRows.transform": _TEMPORARY,
    "controller.packed_rows.PackedRows._pack": _TEMPORARY,
    "registry.tables.reading.shown": _OF_SERVER,
    "registry.tables.reading.counted_by_pages": _OF_SERVER,
    "registry.tables.reading.stored_at": _OF_SERVER,
    "registry.tables.records.category_numbers": "a column of the query",
    "registry.register.register": _OF_SERVER,
    "registry.register.drop": _OF_SERVER,
    "registry.register._check_distinct": _OF_SERVER,
    "registry.register._canonical": _OF_SERVER,
    "sessions.inside.guarded_reads._lock": _OF_SERVER,
    "sessions.inside.guarded_reads.scan": "queries written in the modules that read tables, and a number",
    "sessions.session.temporary_table": _TEMPORARY,
    "interfaces.web.routes.paged_lists.listed": "one of the lists of the module",
}


def text_of(node: ast.AST) -> str | None:
    """What is written of a string: a constant, or the constant parts of an f-string or a sum."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "x" for part in parts)
        case ast.BinOp(left=left, op=ast.Add()):
            return text_of(left)
    return None


def constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module names."""
    results = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            text = text_of(node.value)
            results |= {each.id: text for each in targets if isinstance(each, ast.Name) and text is not None}
    return results


def is_sql(node: ast.AST, named: dict[str, str]) -> bool:
    text = named.get(node.id) if isinstance(node, ast.Name) else text_of(node)
    return bool(text and SQL.match(text))


def put_in(node: ast.AST, named: dict[str, str]) -> list[ast.expr]:
    """The expressions that an expression puts into SQL."""
    match node:
        case ast.JoinedStr(values=parts) if is_sql(node, named):
            return [part.value for part in parts if isinstance(part, ast.FormattedValue)]
        case ast.Call(func=ast.Attribute(value=text, attr=attribute)) if attribute in JOINING and is_sql(text, named):
            return [*node.args, *(keyword.value for keyword in node.keywords)]
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right) if is_sql(left, named):
            return [right]
    return []


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Each node, with the name of the function or class around it."""

    def walk(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            is_place = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            inner = f"{place}.{child.name}".strip(".") if is_place else place  # type: ignore[attr-defined]
            yield inner, child
            yield from walk(child, inner)

    yield from walk(tree, "")


def unquoted(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What is put into SQL and is no constant of a module: the function, and the expression."""
    named = constants(tree)
    for place, node in functions(tree):
        for expression in put_in(node, named):
            written = ast.unparse(expression)
            if not isinstance(expression, ast.Constant) and not CONSTANT.fullmatch(written):
                yield f"{module}.{place}".strip("."), written


def built(tree: ast.Module) -> Iterator[str]:
    """Statements that are sent as they are put together, and do not begin with a text of SQL."""
    named = constants(tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in SENDING
            and node.args
        ):
            first = node.args[0]
            is_made = isinstance(first, ast.JoinedStr | ast.BinOp) or (
                isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and first.func.attr in JOINING
            )
            if is_made and not is_sql(getattr(getattr(first, "func", first), "value", first), named):
                yield ast.unparse(first)


def composed_by_psycopg(expression: str) -> bool:
    return expression.startswith("sql.SQL(")


def module_of(place: str) -> str:
    return max((module for module in TREES if f"{place}.".startswith(f"{module}.")), key=len)


@pytest.mark.parametrize("module", sorted(TREES))
@pytest.mark.attack("sql-as-name")
def test_what_is_put_into_sql_is_quoted_or_a_constant(module):
    results = {place for place, _ in unquoted(module, TREES[module])}
    assert results == {place for place in QUOTED if module_of(place) == module}
    assert not [each for each in built(TREES[module]) if not composed_by_psycopg(each)]


INJECTIONS = (
    "def f(s, n): s.query(f'drop table {n}')",
    "def f(s, n): s.query('drop table ' + n)",
    "def f(s, n): s.query('drop table %s' % n)",
    "def f(s, n): s.query('drop table {}'.format(n))",
    "_D = 'drop table {}'\ndef f(s, n): s.query(_D.format(n))",
    "_D = 'select @ from t'\ndef f(s, n): s.query(_D.replace('@', n))",
    "def f(s, n):\n    text = f'select * from t where a = {n}'\n    s.query(text)",
    "def f(s, n): s.query(f'{n} table t')",
    "def f(s, n): s.connection.execute(n + ' table t')",
    "def f(s, n): s.query('; '.join(n))",
)


@pytest.mark.parametrize("code", INJECTIONS)
@pytest.mark.control("sql-as-name")
def test_a_name_that_is_put_in_would_be_seen(code):
    tree = ast.parse(code)
    assert [*unquoted("m", tree), *built(tree)]


HARMLESS = (
    "def f(s, n): s.query('select $1', n)",
    "def f(s, n): s.query(sql.SQL('drop table {}').format(sql.Identifier(n)).as_string())",
    "_C = 'x'\ndef f(s): s.query(f'select {_C}')",
    "def f(n): raise ValueError(f'table {n} is not there; select another')",
)


@pytest.mark.parametrize("code", HARMLESS)
@pytest.mark.control("sql-as-name")
def test_what_is_quoted_passes(code):
    tree = ast.parse(code)
    assert not [*unquoted("m", tree), *(each for each in built(tree) if not composed_by_psycopg(each))]
