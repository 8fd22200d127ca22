"""What may import what, what the server has to load, and how large and how named a room may be."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import dbdp

PACKAGE = Path(dbdp.__file__).parent
MODULES = {
    ".".join(("dbdp", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
HOUSE = (  # a folder imports only those above it
    "checks",
    "optional",
    "learning",
    "privacy",
    "algorithms",
    "statistics",
    "sessions",
    "registry",
    "packing",
    "controller",
    "deployment",
    "interfaces",
)
INTERFACES = ("plain", "terminal", "sql", "python", "web", "cli")  # and among interfaces
CHECKS = "dbdp.checks"  # what every package may import
MOST_MEMBERS = 11  # ten, and the catalogue of the algorithms
HEAVY = ("scipy", "sklearn", "psycopg", "sqlalchemy", "rich", "click")


def package_of(name):
    """The package that a relative import in the module starts from."""
    return name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]


def imported(name):
    """Every module that a module imports anywhere in it, also within functions."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package_of(name).rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, (parent, node.module)))
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def importers(package):
    """The modules that import a package, by their names within dbdp."""
    found = (name for name in MODULES if any(f"{target}.".startswith(f"{package}.") for target in imported(name)))
    return {name.removeprefix("dbdp.") for name in found}


def within(package):
    return [name for name in MODULES if f"{name}.".startswith(f"{package}.")]


def ours(name):
    """The modules of dbdp that a module imports."""
    return {target for target in imported(name) if target in MODULES and target != "dbdp"}


def needed(name):
    """The modules that a module imports from, also within functions: of a package itself only if a name of its own."""
    for target in ours(name):
        if not (MODULES[target].name == "__init__.py" and only_modules_from(name, target)):
            yield target


def only_modules_from(name, package):
    named = {each for each in imported(name) if each.rpartition(".")[0] == package}
    return named <= set(MODULES)


def circles():
    """The sets of modules that import each other, over whatever others."""
    reached = {name: set(needed(name)) for name in MODULES}
    while (
        more := {name: found.union(*(reached[each] for each in found)) for name, found in reached.items()}
    ) != reached:
        reached = more
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in MODULES
        if name in reached[name]
    }


def test_no_modules_import_each_other_in_a_circle():
    assert [sorted(circle) for circle in circles()] == []


def test_a_circle_of_imports_would_be_seen(monkeypatch):
    monkeypatch.setitem(
        TREES,
        "dbdp.privacy.accounting.events",
        ast.parse("def late():\n    from dbdp.privacy.accounting import budget"),
    )
    assert any({"dbdp.privacy.accounting.events", "dbdp.privacy.accounting.budget"} <= circle for circle in circles())


def test_learning_and_privacy_never_import_each_other():
    for one, other in (("dbdp.learning", "dbdp.privacy"), ("dbdp.privacy", "dbdp.learning")):
        assert within(one)
        for name in within(one):
            assert not ours(name) & set(within(other)), name


@pytest.mark.parametrize(("package", "libraries"), [("dbdp.learning", {"numpy"}), ("dbdp.privacy", {"numpy", "flint"})])
def test_the_mathematics_imports_libraries_of_numbers_only(package, libraries):
    outside = {
        target.partition(".")[0]
        for name in within(package)
        for target in imported(name)
        if not f"{target}.".startswith(f"{package}.")
    }
    assert outside - sys.stdlib_module_names <= libraries | {"dbdp"}
    used = {target for name in within(package) for target in ours(name)}
    assert all(f"{target}.".startswith(f"{package}.") for target in used - {CHECKS})


def test_checks_of_values_import_the_standard_library_alone():
    assert {target.partition(".")[0] for target in imported(CHECKS)} <= sys.stdlib_module_names
    assert importers(CHECKS)


def rank(name):
    """The place of a module in the total order."""
    folder, *inner = name.removeprefix("dbdp.").split(".")
    return HOUSE.index(folder), INTERFACES.index(inner[0]) if folder == "interfaces" and inner else 0


def test_a_folder_imports_only_folders_above_it():
    for name in MODULES.keys() - {"dbdp", "dbdp.orm"}:  # public names
        assert all(rank(target) <= rank(name) for target in ours(name) - {"dbdp.interfaces"}), name


def test_no_folder_has_more_members_than_a_reader_remembers():
    for folder in [path for path in PACKAGE.rglob("*") if (path / "__init__.py").is_file()]:
        members = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
        assert len(members) - 1 <= MOST_MEMBERS, folder  # less __init__


def test_every_folder_has_a_sentence():
    assert {
        name for name, path in MODULES.items() if path.name == "__init__.py" and not ast.get_docstring(TREES[name])
    } == set()


def test_privacy_draws_from_the_operating_system_alone():
    for name in within("dbdp.privacy"):
        assert not {"random", "secrets", "numpy.random"} & set(imported(name)), name
        named = {node.attr for node in ast.walk(TREES[name]) if isinstance(node, ast.Attribute)}
        assert not named & {"random", "default_rng", "seed"}, name


def test_only_the_session_and_the_server_know_plpy():
    named = {
        name
        for name, tree in TREES.items()
        if any(isinstance(node, ast.Name) and node.id == "plpy" for node in ast.walk(tree))
    }
    assert importers("plpy") == {"interfaces.sql.boundary"}
    assert {name.removeprefix("dbdp.") for name in named} <= {"interfaces.sql.boundary", "sessions.server"}


def test_only_sessions_know_where_they_run():
    sessions = {"SpiSession", "ServerSession", "ClientSession"}
    for name, tree in TREES.items():
        nodes = list(ast.walk(tree))
        assert "in_server" not in {node.attr for node in nodes if isinstance(node, ast.Attribute)}, name
        called = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        tested = [argument for node in called if node.func.id in ("isinstance", "issubclass") for argument in node.args]
        named = {node.id for each in tested for node in ast.walk(each) if isinstance(node, ast.Name)}
        assert not named & sessions, name


def test_only_interfaces_import_the_controller():
    assert importers("dbdp.controller.requests") == {
        "interfaces.sql.functions",
        "interfaces.python.client.training_calls",
    }


def test_only_what_connects_imports_psycopg():
    folders = {tuple(name.split(".")[: 2 if name.startswith("interfaces") else 1]) for name in importers("psycopg")}
    connecting = {
        ("sessions",),
        ("deployment",),
        ("interfaces", "python"),
        ("interfaces", "cli"),
        ("interfaces", "web"),
    }
    assert ("sessions",) in folders <= connecting


def modules_after(*names):
    """What a fresh interpreter has loaded after these imports."""
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["interfaces.sql.scoring", "controller.requests", "packing.packer"])
def test_what_the_server_imports_is_light(name):
    loaded = modules_after(f"dbdp.{name}")
    assert f"dbdp.{name}" in loaded
    assert not loaded & set(HEAVY)


def test_balls_are_loaded_where_they_are_needed_first():
    assert "flint" not in modules_after("dbdp.controller.requests", "dbdp.privacy.mechanisms")
    assert "flint" in modules_after("dbdp.privacy.noise.rounding")


def test_a_heavy_import_would_be_seen():
    assert "psycopg" in modules_after("dbdp.controller.requests", "psycopg")


def body_lines(function):
    """Lines of a function from the first statement that is not its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return function.end_lineno - body[0].lineno + 1 if body else 0


def lengths():
    return {
        f"{name}.{node.name}": body_lines(node)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_no_function_is_over_40_lines():
    assert {name: lines for name, lines in lengths().items() if lines > 40} == {}


def test_nine_functions_in_ten_are_under_20_lines():
    counted = lengths()
    assert len(counted) > 100
    assert sum(lines < 20 for lines in counted.values()) >= 0.9 * len(counted)


LONGEST_MODULE, MOST_METHODS = 500, 25


def above(counts, most):
    return {name: count for name, count in counts.items() if count > most}


def module_lines():
    return {name.removeprefix("dbdp."): len(path.read_text().splitlines()) for name, path in MODULES.items()}


def methods(name, tree):
    """Numbers of the methods that each class of a module has itself."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        f"{name.removeprefix('dbdp.')}.{node.name}": sum(isinstance(each, functions) for each in node.body)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def test_no_module_is_over_500_lines():
    assert above(module_lines(), LONGEST_MODULE) == {}


def test_no_class_has_over_25_methods():
    counted = {each: count for name, tree in TREES.items() for each, count in methods(name, tree).items()}
    assert above(counted, MOST_METHODS) == {}


def test_a_large_class_would_be_seen():
    source = "class Large:\n" + "".join(f"    def f{number}(self): pass\n" for number in range(26))
    assert above(methods("dbdp.large", ast.parse(source)), MOST_METHODS) == {"large.Large": 26}


def repeated_names(paths):
    """Names that several files have, each with how many, and the files that repeat the name of their folder."""
    files = [path for path in paths if path.name != "__init__.py"]
    counted = Counter(path.stem for path in files)
    return above(counted, 1), {path.as_posix() for path in files if path.stem == path.parent.name}


def test_a_search_for_a_file_finds_one():
    assert repeated_names(path.relative_to(PACKAGE) for path in MODULES.values()) == ({}, set())


def test_a_doubled_file_name_would_be_seen():
    paths = map(Path, ("a/__init__.py", "b/__init__.py", "a/rows.py", "b/rows.py", "b/b.py"))
    assert repeated_names(paths) == ({"rows": 2}, {"b/b.py"})


def repeated_classes(trees):
    """Names that several classes have, each with how many."""
    counted = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return above(counted, 1)


def test_a_search_for_a_class_finds_one():
    assert repeated_classes(TREES.values()) == {}


def test_a_doubled_class_name_would_be_seen():
    sources = ("class Row: pass", "class Table:\n    class Row: pass", "class Rows: pass")
    assert repeated_classes(map(ast.parse, sources)) == {"Row": 2}


LONGEST_NAME = 60


def long_names(folder):
    """Names of tests in a folder of tests that `pytest -k` can hardly be given."""
    return sorted(
        f"{path.name}::{node.name}"
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and len(node.name) > LONGEST_NAME
    )


def test_no_name_of_a_test_has_over_60_characters():
    tests = Path(__file__).parent
    found = {folder.relative_to(tests).as_posix(): long_names(folder) for folder in (tests, *tests.rglob("*/"))}
    assert {name: names for name, names in found.items() if names} == {}


def test_a_long_name_of_a_test_would_be_seen(tmp_path):
    (tmp_path / "test_it.py").write_text(f"def test_{'a' * 56}():\n    pass\n\n\ndef test_{'b' * 55}():\n    pass\n")
    assert long_names(tmp_path) == [f"test_it.py::test_{'a' * 56}"]
