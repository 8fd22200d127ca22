"""docs/reference/: the generated pages agree with the server's catalogue, the options and the command line."""

import re
import runpy
from pathlib import Path

import pytest

GENERATE = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generate.py"))


def test_the_generated_pages_are_up_to_date(database):
    """Otherwise run `make reference` and read the difference."""
    for path, content in GENERATE["generated"](database).items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name} is out of date: run `make reference`"


def public_functions() -> set[str]:
    """The names that the page lists before the internal functions."""
    page = (GENERATE["FOLDER"] / "sql.md").read_text(encoding="utf-8").partition("\n## Views")[0]
    return set(re.findall(r"^### (\w+)$", page, re.MULTILINE))


def test_what_df_lists_is_what_the_reference_describes_to_users(connection):
    r"""`\df dbdp.*` lists every function of a schema."""
    sql = "select distinct proname from pg_proc where pronamespace = 'dbdp'::regnamespace"
    assert {name for (name,) in connection.execute(sql).fetchall()} == public_functions() > {"dp_logreg", "predict"}


@pytest.mark.parametrize(
    "change",
    [
        "comment on function dbdp.budget is 'something else'",
        "grant execute on function dbdp_internal.shuffle to dbdp_analyst",
        "create function dbdp.more(number int default 7) returns int language sql return number;"
        "comment on function dbdp.more is 'more'; grant execute on function dbdp.more to dbdp_analyst",
        "create view dbdp.more as select 1 as number; comment on view dbdp.more is 'more'",
    ],
)
def test_a_change_of_the_catalogue_would_be_seen(connection, database, change):
    before = GENERATE["sql_page"](database)
    with connection.transaction(force_rollback=True):
        connection.execute(change.encode())
        assert GENERATE["sql_page"](database) != before


def test_a_function_without_a_comment_is_refused(connection, database):
    with connection.transaction(force_rollback=True):
        connection.execute("create function dbdp.untold() returns int language sql return 1")
        with pytest.raises(ValueError, match="without a comment in sql/: untold"):
            GENERATE["sql_page"](database)


BY_NAME = re.compile(r"pip install (?:--?\S+ )*'?dbdp\b")


def test_no_text_installs_the_package_from_a_registry():
    """It is in none: whoever took the name there would be installed. The controls are two that did."""
    root = GENERATE["FOLDER"].parents[1]
    texts = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "dbdp").rglob("*.py")]
    assert len(texts) > 200
    assert [path.name for path in texts if BY_NAME.search(path.read_text(encoding="utf-8"))] == []
    assert BY_NAME.search("run pip install 'dbdp[web]'") and BY_NAME.search("pip install --upgrade dbdp==1")
