"""What an installed extension has not got: a way to a model without noise, or a switch that turns noise off."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import exact
import numpy as np
import psycopg
import pytest
from acting import acting
from memory import rows_for
from public_facts import facts_of

import dbdp
from dbdp.algorithms import ALGORITHMS, NOISY_WHILE_TRAINING, Facts, NoisyWhileTraining, Request, plan
from dbdp.algorithms.families.noisy_sgd.noisy_steps import NoisySgd
from dbdp.algorithms.rows import Rows
from dbdp.controller.packed_rows import PackedRows
from dbdp.deployment.extension.source import ExtensionSource
from dbdp.privacy.mechanisms import MECHANISMS

PACKAGE = Path(dbdp.__file__).parent
MEMBERS = """
select p.oid::regprocedure::text, l.lanname, p.prosecdef, p.proowner::regrole::text, p.prosrc,
       has_function_privilege('dbdp_analyst', p.oid, 'execute'), p.prorettype::regtype::text, p.proargnames
from pg_depend as d
join pg_proc as p on p.oid = d.objid
join pg_language as l on l.oid = p.prolang
where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
and d.refobjid = (select oid from pg_extension where extname = 'dbdp')"""
# A body takes one name from one of five modules and calls it: what it can do is what that name does.
PLAIN = re.compile(r"from dbdp\.interfaces\.sql\.outcomes import (\w+)\s+return \1\(\)")
MARKS = {
    "@module@": "(?:functions|model_functions|statistic_functions|aggregates|scoring)",
    "@function@": r"\w+",
    "@version@": dbdp.__version__,
    "MODULE_PATHNAME": "[^'\"]+",
}
LEARNING = {"sgd_transition", "sgd_terminate", "sgd_epoch", "shuffle", "charge", "store_release", "store_network"}
LEARNING |= {"noisy_transition", "noisy_terminate", "noisy_steps", "gradient_transition", "gradient_sum"}
LEARNING |= {"loss_transition", "loss_sum", "label_transition", "label_counts", "count_errors_transition"}
LEARNING |= {"second_moment_transition", "second_moment", "joint_moment_transition", "joint_moment"}
LEARNING |= {"lengths", "measured_gradient_transition", "measured_gradient_sum"}
LEARNING |= {"count_errors", "tally_transition", "tally_terminate", "tally"}
INTERFACES = dict.fromkeys(("dp_train", "dp_logreg", "dp_svm", "dp_linreg", "dp_tune"), "released")
INTERFACES |= {"dp_summarize": "record", "dp_describe": "record", "dp_table": "record", "dp_quantiles": "record"}
INTERFACES |= dict.fromkeys(("dp_score", "dp_class_balance"), "json")
ACTING = {f"try_{name}": result for name, result in INTERFACES.items()}  # what each of them calls
RIGHTS = {"own_roles", "own_datasets", "open_datasets", "granted_models"}  # numbers and names that a role may know
SWITCHES = re.compile(r"environ(?:\.get\(|\[)\s*f?[\"']?(\w*)|current_setting\('([\w.]+)'")


ANSWERS = {"dbdp_internal.is_role_taken()", "dbdp_internal.vouched(bigint,oid)"}  # true or false, of the session only


def suspects(connection: psycopg.Connection) -> list[str]:
    """Functions of the extension in Python that are not a call of one name of the package's interfaces."""
    body = re.escape((ExtensionSource.installed().plpython / "body.py").read_text().strip())
    for mark, pattern in MARKS.items():
        body = body.replace(re.escape(mark), pattern)
    results = []
    for name, language, _, _, source, *_ in connection.execute(MEMBERS).fetchall():
        is_known = name in ANSWERS or PLAIN.fullmatch(source.strip()) or re.fullmatch(body, source.strip())
        if language == "plpython3u" and not is_known:
            results.append(name)
    return results


def test_every_python_function_calls_one_name(connection):
    assert suspects(connection) == []


def test_the_hook_would_be_seen_if_it_belonged_to_the_extension(connection):
    with connection.transaction(force_rollback=True), exact.installed(connection):
        name = f"{exact.SCHEMA}.exact_models(text,json,text[],text)"
        connection.execute(f"alter extension dbdp add function {name}")
        assert suspects(connection) == [name]
        connection.execute(f"alter extension dbdp drop function {name}")


def test_the_hook_is_gone_when_its_test_is_over(connection):
    with exact.installed(connection):
        assert connection.execute(f"select to_regnamespace('{exact.SCHEMA}')").fetchone() != (None,)
    assert connection.execute(f"select to_regnamespace('{exact.SCHEMA}')").fetchone() == (None,)
    sql = "select count(*) from pg_proc where prosrc like '%train_exactly%'"
    assert connection.execute(sql).fetchone() == (0,)


def test_an_analyst_trains_only_by_what_adds_noise(connection):
    members = connection.execute(MEMBERS).fetchall()
    names = {name.partition("(")[0].rpartition(".")[2] for name, *_ in members}
    assert names >= LEARNING | set(INTERFACES) | set(ACTING)
    for name, language, definer, owner, _, of_analysts, result, arguments in members:
        bare = name.partition("(")[0].rpartition(".")[2]
        if "block" in (arguments or ()):  # what reads packed rows is recognised by its argument's name
            assert bare in LEARNING, name
        if bare in LEARNING:  # a state, blocks and the odometer are for roles that may read the table
            assert not of_analysts, name
        if bare in INTERFACES:
            assert (language, of_analysts, result) == ("sql", True, INTERFACES[bare]), name
        if bare in ACTING:
            assert (owner, of_analysts, result) == ("dbdp_owner", True, ACTING[bare]), name
        assert not definer or name in ANSWERS, name
        if (
            of_analysts and bare not in INTERFACES
        ):  # no state, no block; array_bytes and row_bytes show their own argument
            assert result != "bytea" or bare in ("array_bytes", "row_bytes", "row_sent", "not_a_row"), name
            assert not result.endswith("[]") or bare in RIGHTS, name


@cache
def every_call() -> list[tuple[str, str, str]]:
    """Module, function and name called of every call in the package."""
    results = []
    for path in PACKAGE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                named = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
                results += [(path.stem, function.name, getattr(f, "id", getattr(f, "attr", ""))) for f in named]
    return results


def calls(name: str) -> Iterator[tuple[str, str]]:
    """Module and function of every place in the package where a function of that name is called."""
    return ((module, function) for module, function, called in every_call() if called == name)


def module(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"))


def functions(name: str) -> dict[str, ast.FunctionDef]:
    """The functions of a module, and the methods of its classes, by name."""
    return {node.name: node for node in ast.walk(module(name)) if isinstance(node, ast.FunctionDef)}


def statements(function: ast.FunctionDef) -> list[str]:
    """What a function does, less its docstring."""
    return [ast.unparse(each) for each in function.body[1:]]


def test_wherever_the_package_trains_the_next_thing_is_noise():
    """An exact model is computed only in `run`, which then only adds noise, or has no use for it."""
    training = {call for call in calls("exact") if call[0] != "streams"}  # which have exact noise
    assert training == {("shared", "run"), ("shared", "exact_by_epoch"), ("tuning", "_read_on")}
    once = functions("algorithms/families/perturbed_once/shared.py")
    packed, *others = statements(once["run"])
    assert "exact" not in packed
    assert others[:3] == [
        "exact = self.exact(rows, progress)",
        "released = self.mechanism.release(exact.ravel()).reshape(exact.shape)",
        "models, dimension = (projected(released, self.learning.radius), self.facts.dimension)",
    ]
    assert not any("exact" in each for each in others[3:])
    assert set(calls("exact_by_epoch")) == {("baselines", "descent")}  # in the owner's client alone
    assert set(calls("epoch")) == {("shared", "exact")}
    (left,) = (node for node in functions("algorithms/combined/tuning.py")["_read_on"].body if isinstance(node, ast.If))
    (statement,) = left.body
    assert isinstance(statement, ast.Expr)  # a statement by itself, whose value nothing has
    assert ast.unparse(statement).endswith(".exact(rows)")


def public_methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


PROMISED = public_methods(Rows)
SUMS = {
    "noisy_steps",
    "gradient_sum",
    "loss_sum",
    "label_counts",
    "second_moment",
    "joint_moment",
}  # the aggregates behind `Rows`
ASKED = re.compile(rf"dbdp_internal\.({'|'.join(SUMS)})\(|^({'|'.join(SUMS)})$")


def texts(path: Path) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_only_packed_rows_request_exact_sums():
    """And only what runs a plan, or tallies for a score, and the baseline of the owner's client, has packed rows."""
    asking = {path.stem for path in PACKAGE.rglob("*.py") for text in texts(path) if ASKED.search(text)}
    assert asking == {"packed_rows"}
    assert set(calls("PackedRows")) == {("packed_rows", name) for name in ("slice", "_together", "_side_by_side")}
    assert set(calls("packed_rows")) == {
        *(("requests", name) for name in ("rows", "_model_of_group")),
        *(("baselines", name) for name in ("minimum", "descent")),
        ("noisy_scores", "_tallied"),
        ("summary_requests", "summarize"),
    }
    assert [path.stem for path in PACKAGE.rglob("*.py") if "plan.run(" in path.read_text("utf-8")] == ["requests"]
    assert public_methods(PackedRows) - PROMISED == {"joint_moment"}  # of the summaries
    assert {module for module, _ in calls("errors")} - {"app"} == {
        "tuning",
        "shared_moment",
        "baselines",
    }  # pydantic has some too


def test_only_known_stages_request_tallies():
    """All but the one of `shared_moment` and some of `product_releases` are released in the same expression."""
    tallied = {path.stem: path.read_text("utf-8").count(".release(rows.tally(") for path in PACKAGE.rglob("*.py")}
    assert {module: number for module, number in tallied.items() if number} == {
        "noisy_scores": 1,
        "column_moments": 1,
        "flattening": 1,
        "preconditioning": 1,
        "label_window": 1,
        "self_evaluation": 1,
        "residual_clip": 2,
        "pair_descent": 1,
        "product_releases": 1,
        "label_counts": 1,
    }
    assert sorted(module for module, _ in calls("tally")) == [
        "column_moments",
        "flattening",
        "label_counts",
        "label_window",
        "noisy_scores",
        "pair_descent",
        "preconditioning",
        *["product_releases"] * 3,  # a gradient, a comparison, and rows in other coordinates
        *["residual_clip"] * 2,
        "self_evaluation",
        "shared_moment",
    ]


SCANS = ("scan", "scan_samples")


def test_every_caller_of_an_exact_sum_is_listed():
    """What each of them does next is a mechanism: their own tests, and §14.8, are about that."""
    of_algorithms = {path.stem for path in (PACKAGE / "algorithms").rglob("*.py")}
    results = {
        name: set()
        for name in ("gradient_sum", "loss_sums", "recursive_stages", "label_counts", "second_moment", *SCANS)
    }
    for name, callers in results.items():
        callers |= {f"{module}.{function}" for module, function in calls(name) if module in of_algorithms}
    assert results == {
        "gradient_sum": {
            "noisy_sums.noisy_gradient_sum",
            # of objective perturbation: the noise is in what is minimised
            *("minimisation.minimiser", "recursive_descent.minimiser"),
            *("minimisation.minimise", "minimisation.gradient"),  # the baseline's
        },
        "loss_sums": {
            *("dp_agd.selected", "line_search.search", "privgene.losses"),
            *("minimisation.minimise", "minimisation.value"),
        },
        "recursive_stages": {"recursive_descent.minimiser"},
        "label_counts": {"majority.__call__"},
        "second_moment": {"preconditioning.released"},
        # noise is drawn in the scan itself
        "scan": {"noisy_steps.__call__", "noisy_steps.scan"},
        "scan_samples": {"noisy_steps.scan"},
    }
    assert {name for name, _ in calls("minimise")} == {"baselines"}


class OnlyPromised:
    """Rows in memory that answer what `Rows` promises and nothing else; they stay in their order."""

    def __init__(self, made: NoisyWhileTraining) -> None:
        features = np.random.default_rng().normal(size=(300, 3))
        self._rows = rows_for(made, features, np.where(features[:, 0] > 0, 1.0, -1.0))
        self.requested: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        assert name in PROMISED
        self.requested.add(name)
        return (lambda: None) if name == "shuffle" else getattr(self._rows, name)


@pytest.mark.parametrize("algorithm", NOISY_WHILE_TRAINING)
def test_an_algorithm_gets_exact_sums_by_its_access_only(algorithm):
    """Forty runs without two models are as rare as forty line searches without a step, or one class forty times."""
    epsilon = 1e-3 if algorithm == "majority" else 8.0
    made = plan(Request(epsilon, 1e-6, algorithm=algorithm), facts_of(300, 3))
    assert isinstance(made, NoisyWhileTraining)
    rows = OnlyPromised(made)
    models: set[bytes] = set()
    for _ in range(40):
        models.add(np.asarray(made.run(rows, lambda *_: None).models).tobytes())
        if len(models) == 2:
            break
    assert rows.requested & {"gradient_sum", "loss_sums", "label_counts", "tally", *SCANS}
    assert len(models) == 2


def reachable(*names: str) -> set[str]:
    """Modules of the package that these import, and those that they import, wherever in them."""
    left, found = list(names), set()
    while left:
        name = left.pop()
        path = PACKAGE / (name.removeprefix("dbdp.").replace(".", "/") + ".py")
        if name in found or not path.is_file():
            continue
        found.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dbdp"):
                left += [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                left += [alias.name for alias in node.names]
    return found


def test_no_server_interface_reaches_the_baseline():
    algorithms = [algorithm.plan.__module__ for algorithm in ALGORITHMS.values()]  # imported by name
    result = reachable(
        *(f"dbdp.interfaces.sql.{name}" for name in ("functions", "model_functions", "aggregates", "scoring")),
        *algorithms,
    )
    assert {
        "dbdp.controller.requests",
        "dbdp.controller.packed_rows",
        "dbdp.algorithms.families.selections.privgene",
        "dbdp.controller.statistics.noisy_scores",
    } <= result
    assert not result & {
        "dbdp.controller.baselines",
        "dbdp.interfaces.python.client.database",
        "dbdp.interfaces.cli.main",
    }
    assert "dbdp.controller.baselines" in reachable("dbdp.interfaces.python.client.database")  # it would be seen


def test_no_option_setting_or_variable_is_about_noise():
    assert not [each.name for each in fields(Request) if re.search("noise|exact|seed|debug|test", each.name)][1:]
    results = set()
    for path in PACKAGE.rglob("*.py"):
        # They make the virtual environment, and copies of tables, before there is anything to train with.
        if path.name != "bootstrap.py" and path.parent.name != "following":
            for match in SWITCHES.finditer(path.read_text(encoding="utf-8")):
                results.add(match[1] or match[2] or "")
    of_the_server = {"role", "transaction_isolation", "dbdp.pack_memory", "block_size", "synchronous_standby_names"}
    of_the_server |= {""}  # threads of BLAS, which are set and not read
    of_the_server |= {"fsync"}  # the doctor looks at it
    of_the_server |= {"server_encoding", "transaction_read_only"}  # with others each call is refused
    of_the_server |= {"default_transaction_isolation", "default_transaction_read_only"}  # for the doctor
    of_the_server |= {"session_replication_role"}  # without triggers each call is refused
    of_the_server |= {"temp_file_limit", "temp_tablespaces"}  # of the files of packed rows
    of_the_server |= {"places"}  # whose files a client may open
    of_the_server |= {"server_version_num", "debug_assertions"}  # others are refused
    of_the_server |= {"dbdp.threads", "max_parallel_workers_per_gather"}
    of_the_server |= {"extension_control_path"}  # a folder for the files of an installation
    assert results == of_the_server | {"DBDP_HOME", "XDG_DATA_HOME", "DBDP_DATA", "DBDP_METRICS_TOKEN", "URL_VARIABLE"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_however_much_is_paid_there_is_noise(mechanism):
    """At least a thousand steps of the grid that the model is rounded to."""
    delta = 0.9 if mechanism.endswith("gaussian") else 0.0
    for epsilon in (1e-6, 1.0, 1e6):
        made = plan(Request(epsilon, delta, "bolt_on", mechanism=mechanism), Facts(10, 3)).mechanism
        assert made.steps > 1000


@pytest.mark.parametrize("algorithm", ["scs13", "bst14", "dp_sgd", "dp_adam", "sgd_adv", "rrpsgd"])
def test_however_much_is_paid_there_is_noise_in_every_update(algorithm):
    for epsilon in (1e-3, 1.0, 1e6):
        made = plan(Request(epsilon, 0.5, algorithm=algorithm), Facts(10, 3))
        assert isinstance(made, NoisyWhileTraining)
        run = made.method.args[0] if isinstance(made.method, partial) else made.method
        assert isinstance(run, NoisySgd)
        assert all(training.noise.steps > 1000 for training in run.trainings)


REFUSED = {
    "a function in Python": "create function pg_temp.mine() returns int language plpython3u as $$return 1$$",
    "a function in C": "create function pg_temp.mine() returns int language c as 'dbdp', 'mine'",
    "a function of the server": "create function pg_temp.mine() returns int language internal as 'pg_backend_pid'",
    "a block in Python": "do language plpython3u $$ pass $$",
    "the hook's schema": "create schema test_build",
    "another body": "create or replace function dbdp.dp_explain(dataset text) returns json as 'select 1' language sql",
    "another setting of an interface": "alter function dbdp.dp_train reset all",
    "another owner of an interface": "alter function dbdp.dp_train owner to current_user",
    "the rights of an interface": "alter function dbdp.dp_train security invoker",
    "another member of the extension": "alter extension dbdp drop function dbdp.dp_explain",
    "a trigger on the models": "create trigger t before insert on dbdp.model "
    "execute function tsvector_update_trigger()",
    "a preloaded library": "set session_preload_libraries = 'mine'",
}


@pytest.mark.parametrize("group", ["dbdp_analyst", "dbdp_data_owner"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_role_of_the_extension_can_put_no_code_beside_it(connection, make_role, group, what):
    with acting(connection, make_role("somebody", group)), pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(REFUSED[what].encode())
