"""What the pages show, and to whom: row-level security decides."""

import json
import re
import secrets
from collections.abc import Iterator
from decimal import Decimal
from html import unescape
from pathlib import Path

import pytest
from site_of_tests import FEATURES, ROWS, People, csrf_of, visiting, words

from dbdp.interfaces.web.routes import plan_form
from dbdp.interfaces.web.routes.paged_lists import ROWS_OF_A_PAGE
from dbdp.interfaces.web.views.bars import Rest, budget_bar, parts
from dbdp.interfaces.web.views.rendering import number, percent

LISTS = ["/datasets", "/budgets", "/ledger", "/models", "/statistics", "/allowances", "/plan"]


def test_an_owner_sees_every_charge_and_an_analyst_its_own(owner, analyst, people):
    fields = {"dataset": people.dataset}
    seen, own = (words(client.get("/ledger", params=fields).text) for client in (owner, analyst))
    for kind in ("owner", "analyst"):
        assert people.names[kind] in seen
    assert people.names["analyst"] in own
    assert people.names["owner"] not in own
    assert "released: model" in own


def test_an_analyst_sees_its_own_models_only(owner, analyst, people):
    mine, others = people.models["analyst"], people.models["owner"]
    assert owner.get("/model", params={"id": others}).status_code == 200
    assert analyst.get("/model", params={"id": mine}).status_code == 200
    hidden, none = analyst.get("/model", params={"id": others}), analyst.get("/model", params={"id": 987654321})
    assert hidden.status_code == none.status_code == 404
    assert words(hidden.text).replace(str(others), "") == words(none.text).replace("987654321", "")
    listed = analyst.get("/models").text
    assert f"id={mine}" in listed and f"id={others}" not in listed


def test_a_dataset_without_a_right_looks_as_if_there_were_none(analyst, people):
    assert analyst.get("/dataset", params={"name": people.odd}).status_code == 404
    with visiting(people, "rival") as rival:
        for path in LISTS:
            text = rival.get(path).text
            assert people.dataset not in text
            assert people.names["owner"] not in text
        asked = rival.get("/plan", params={"dataset": people.dataset, "epsilon": "1"})
        assert "is not registered" in words(asked.text)


def test_a_budget_shows_an_analyst_no_name_of_another(owner, analyst, people):
    seen = words(owner.get("/dataset", params={"name": people.dataset}).text)
    own = words(analyst.get("/dataset", params={"name": people.dataset}).text)
    assert people.names["analyst"] in seen
    assert "with charges that you may not see" in own and "whose charges you may not see" not in seen
    bar = own.partition("Budget")[2]
    assert people.names["owner"] not in bar


def test_a_role_without_rights_sees_which_grants_it_needs(people):
    with visiting(people, "stranger") as stranger:
        for path in LISTS:
            answer = stranger.get(path)
            assert answer.status_code == 403
            assert "grant dbdp_data_owner" in words(answer.text)


def test_nothing_that_is_looked_at_changes_a_budget(owner, people):
    with people.login("owner") as session:
        sql = "select charged, recorded, releases from dbdp.budget_details(%s)"
        before = session.execute(sql, (people.dataset,)).fetchone()
        for path in [*LISTS, f"/dataset?name={people.dataset}", f"/plan?dataset={people.dataset}&epsilon=5"]:
            assert owner.get(path).status_code == 200
        assert session.execute(sql, (people.dataset,)).fetchone() == before


def test_a_request_that_reads_cannot_write(shared_site, people):
    server = shared_site.app.state.services.server
    with pytest.raises(Exception, match="refused"), server.acting() as database:
        database.grant_training(people.dataset, people.names["rival"])
    with people.login("owner") as session:
        sql = "select from dbdp.allowances_details where role = %s"
        assert not session.execute(sql, (people.names["rival"],)).fetchall()


def test_a_plan_is_that_of_dp_explain(analyst, people, as_owner):
    """A plan is that of dp explain and shows what would be left."""
    sql = "select dbdp.dp_explain(%s, 2, algorithm => 'bolt_on', batch_size => 20, epochs => 3, loss => 'huber_svm')"
    plan = as_owner.execute(sql, (people.dataset,)).fetchone()[0]
    options = {
        "dataset": people.dataset,
        "epsilon": "2",
        "algorithm": "bolt_on",
        "batch_size": "20",
        "epochs": "3",
        "loss": "huber_svm",
    }
    text = words(analyst.get("/plan", params=options).text)
    for key in ("sensitivity", "noise_scale", "charge"):
        assert number(plan[key]) in text
    sql = "select left_share, charge_limit from dbdp.budget_details(%s)"
    share, limit = as_owner.execute(sql, (people.dataset,)).fetchone()
    needed = plan["charge"] / float(limit)
    assert f"part of the budget {percent(needed)}" in text
    assert f"Of the budget {percent(share - needed)} would be left, of {percent(share)} now" in text
    assert "To run it" in text and "would be refused" not in text


def test_a_plan_beyond_the_budget_shows_that_it_would_be_refused(owner, people):
    text = words(owner.get("/plan", params={"dataset": people.dataset, "epsilon": "99"}).text)
    assert "The budget does not have that much left: this training needs 99 %, and" in text
    assert "This training would be refused. An ε up to" in text
    fitting = re.search(r"An ε up to (\S+) fits at δ = 0, with noise at the end", text)[1]
    assert "To run it" not in text and "dp_train" not in text
    again = words(owner.get("/plan", params={"dataset": people.dataset, "epsilon": fitting}).text)
    assert "would be refused" not in again and "To run it" in again


def test_a_plan_beyond_an_allowance_is_shown_as_refused(people):
    with visiting(people, "odd") as odd:
        text = words(odd.get("/plan", params={"dataset": people.dataset, "epsilon": "25"}).text)
    assert "The budget does not" not in text
    assert "The allowance of" in text and "would be refused" in text


def test_a_plan_beyond_the_delta_names_the_delta(owner, people):
    fields = {"dataset": people.dataset, "epsilon": "1", "delta": "2e-3"}
    text = words(owner.get("/plan", params=fields).text)
    assert "The budget does not have that much δ left: this training needs 0.002, and 0.001 is left." in text
    assert "No training at δ = 0.002 fits; choose a smaller δ." in text and "An ε up to" not in text
    both = words(owner.get("/plan", params=fields | {"epsilon": "200"}).text)
    assert "that much left: this training needs" in both and "that much δ left: this training needs" in both
    with visiting(people, "odd") as odd:  # whose allowance is a fifth
        text = words(odd.get("/plan", params=fields | {"delta": "5e-4"}).text)
    assert "The budget does not" not in text
    assert "that much δ left: this training needs 0.0005, and 0.0002 is left" in text
    assert "The owner of the dataset may grant more" in text


def test_a_plan_shows_what_it_leaves_of_the_delta(owner, people):
    fields = {"dataset": people.dataset, "epsilon": "1", "delta": "1e-4"}
    assert "Of its δ 90 % , of 100 % now" in words(owner.get("/plan", params=fields).text)


@pytest.mark.parametrize(
    ("given", "marked"),
    [
        ({"epsilon": "-1"}, "epsilon"),
        ({"epsilon": "1", "delta": "2"}, "delta"),
        ({"epsilon": "1", "algorithm": "none_of_them"}, "algorithm"),
    ],
)
def test_a_field_that_dbdp_refuses_is_marked(owner, people, given, marked):
    text = owner.get("/plan", params={"dataset": people.dataset} | given).text
    assert re.findall(r'<(?:input|select) id="(\w+)"[^>]*aria-invalid', text) == [marked]
    assert text.count('class="wrong"') == 1
    assert 'role="alert"' in text


def test_a_refusal_marks_the_fields_that_it_is_about():
    for name, told, marked in (
        ("epsilon", "epsilon = -1 must be positive", True),
        ("epsilon", "epsilon is too small; use a larger one", True),
        ("epsilon", "delta = 0; give a smaller epsilon", False),
        ("epsilon", "dataset epsilon_x is not registered", False),
        ("epochs", "at most 3 passes; epochs = 5 is too many", True),
        ("exponent", "algorithm 'nsgd' does not support exponent (got 0.5); drop exponent", True),
        ("algorithm", "algorithm 'nsgd' does not support exponent (got 0.5); drop exponent", False),
    ):
        fields, _ = plan_form.read({"epsilon": "1"})
        assert (name in [each.name for each in plan_form.marked(fields, told) if each.problem]) == marked


def test_an_error_is_shown_with_its_remedy_above_the_form(owner, people):
    options = {"dataset": people.dataset, "epsilon": "1", "algorithm": "dp_sgd", "batch_size": "7"}
    answer = owner.get("/plan", params=options)
    assert 'role="alert"' in answer.text
    assert "dbdp refused this" in words(answer.text)
    assert 'value="7"' in answer.text


def test_a_receipt_has_every_entry_that_is_stored(owner, people):
    with people.login("owner") as session:
        sql = "select receipt from dbdp.models_details where id = %s"
        receipt = session.execute(sql, (people.models["owner"],)).fetchone()[0]
    text = owner.get("/model", params={"id": people.models["owner"]}).text
    shown = text.partition("The receipt as it is stored")[0]
    assert shown.count("<dt>") == len(receipt)
    for key in ("noise_scale", "sensitivity", "charge"):
        assert number(receipt[key]) in shown
    assert "(intercept)" in shown


def test_a_model_of_columns_has_a_chart_of_each(owner, as_owner, people):
    name, table = f"columns_{secrets.token_hex(4)}", f"{people.schema}.of_columns"
    as_owner.execute(f"create table {table} as select i as a, 'u<' as b, i % 2 as y from generate_series(1, 60) as i")
    declared = json.dumps({"a": [0, 60], "b": ["u<", "v"]})
    register = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 100, 1e-3, mode => 'basic')"
    as_owner.execute(register, (name, table, declared))
    try:
        model = as_owner.execute("select model from dbdp.dp_logreg(%s, 1, 1e-6)", (name,)).fetchone()[0]
        text = owner.get("/model", params={"id": model}).text
    finally:
        as_owner.execute("select dbdp.drop_dataset(%s)", (name,))
    assert re.findall(r'<title id="chart-shape-(\d+)">', text) == ["0", "1"]
    assert "u&lt;" in text and f"dbdp.shapes({model})" in text
    array = owner.get("/model", params={"id": people.models["owner"]}).text
    assert "chart-shape" not in array and "chart-coefficients" in array


def test_training_is_granted_and_revoked_after_a_look(owner, people):
    rival, sql = people.names["rival"], "select epsilon from dbdp.allowances_details where role = %s"
    options = {"dataset": people.dataset, "role": rival, "epsilon": "0.5"}
    with people.login("owner") as session:
        page = owner.get("/allowances/grant", params=options).text
        assert "Its members" not in page and "every member of it" in page and "ε = 0.5" in page
        answer = owner.post("/allowances/grant", data=options | {"csrf": csrf_of(page)})
        assert answer.status_code == 303
        assert session.execute(sql, (rival,)).fetchall() == [(0.5,)]
        assert f"{rival} may train on" in words(owner.get(answer.headers["location"]).text)
        page = owner.get("/allowances/revoke", params=options).text
        owner.post("/allowances/revoke", data=options | {"csrf": csrf_of(page)})
        assert session.execute(sql, (rival,)).fetchall() == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"epsilon": "-3"}, "epsilon = -3.0 must be"),
        ({"epsilon": "inf"}, "epsilon = inf must be"),
        ({"epsilon": "100.5"}, "above the 100 of the dataset"),
        ({"role": "nobody_at_all"}, "role 'nobody_at_all' does not exist"),
        ({"dataset": "none_at_all"}, "dataset 'none_at_all'"),
    ],
)
def test_a_grant_shows_the_servers_refusal(owner, people, given, told):
    """The page that asks reads nothing; the server refuses what is confirmed, and nothing is granted."""
    asked = {"dataset": people.dataset, "role": people.names["rival"]} | given
    page = owner.get("/allowances/grant", params=asked).text
    assert 'class="confirm"' in page
    answer = owner.post("/allowances/grant", data=asked | {"csrf": csrf_of(page)})
    assert answer.status_code == 400
    assert told in unescape(words(answer.text))
    with people.login("owner") as session:
        sql = "select from dbdp.allowances_details where role = %s and dataset = %s"
        assert session.execute(sql, (people.names["rival"], people.dataset)).fetchall() == []


def test_a_grant_asks_for_a_number(owner, people):
    asked = {"dataset": people.dataset, "role": people.names["rival"], "epsilon": "much"}
    answer = owner.get("/allowances/grant", params=asked)
    assert answer.status_code == 400
    assert "ε = 'much' is not a number" in unescape(words(answer.text))
    assert 'class="confirm"' not in answer.text


@pytest.fixture(scope="module")
def renewed(people: People) -> Iterator[str]:
    """A dataset whose second budget has spent nine tenths of its δ, in two trainings."""
    name = f"renewed_{secrets.token_hex(3)}"
    with people.login("owner") as session:
        session.execute(f"create table {people.schema}.renewed as {ROWS}")
        sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 30, 1e-3, mode => 'basic')"
        session.execute(sql, (name, f"{people.schema}.renewed", FEATURES))
        train = "select from dbdp.dp_logreg(%s, %s, %s, algorithm => 'bolt_on', batch_size => 20)"
        session.execute(train, (name, 8, 1e-5))
        session.execute("select dbdp.renew_budget(%s, 'another year')", (name,))
        session.execute(train, (name, 1, 4e-4))
        session.execute(train, (name, 3, 5e-4))
        yield name
        session.execute("select dbdp.drop_dataset(%s)", (name,))
        session.execute(f"drop table {people.schema}.renewed")


def test_the_delta_that_was_spent_is_shown_where_the_budget_is(owner, renewed):
    for path, given in (("/dataset", {"name": renewed}), ("/budgets", {"search": renewed})):
        text = words(owner.get(path, params=given).text)
        assert "86.7 % of the budget is left, and 10 % of the δ for releases: 0.0001 of 0.001" in text


def test_a_capacity_is_shown_in_place_of_the_number_of_rows(owner, as_owner, renewed):
    as_owner.execute("select dbdp.raise_capacity(%s, 'for the test', 900)", (renewed,))
    text = words(owner.get("/dataset", params={"name": renewed}).text)
    assert "at most 900" in text
    assert "900 rows are read at most; how many there are is private, and may change." in text
    assert "≤ 900" in words(owner.get("/datasets", params={"search": renewed}).text)


def test_the_charges_of_a_period_add_up(owner, as_owner, renewed, people):
    text = owner.get("/ledger", params={"dataset": renewed}).text
    rows = [words("<main>" + row) for row in text.partition("<tbody")[2].split("<tr")[1:]]
    charged, period = as_owner.execute(
        "select b.charged, d.id from dbdp.dataset as d, dbdp.budget_details(d.name) as b "
        "where d.name = %s and d.dropped_at is null",
        (renewed,),
    ).fetchone()
    present = [row for row in rows if f"period {period}, present" in row]
    assert sum(float(re.search(r"(\S+) \S+ released", row)[1]) for row in present) == float(charged) == 4
    assert len(rows) == 3 and sum("ended" in row for row in rows) == 1
    assert f"period {period}" in words(owner.get("/dataset", params={"name": renewed}).text)
    assert "period" not in words(owner.get("/ledger", params={"dataset": people.dataset}).text)


def test_an_analyst_may_not_grant(analyst, people):
    page = analyst.get("/allowances").text
    assert "Grant training" not in page and "Revoke" not in page.replace('<span class="hidden">Revoke</span>', "")
    form = {"dataset": people.dataset, "role": people.names["rival"], "csrf": csrf_of(page)}
    answer = analyst.post("/allowances/grant", data=form)
    assert answer.status_code == 403
    assert "permission denied" in words(answer.text)


def test_empty_lists_say_what_to_do(people):
    with visiting(people, "rival") as rival:
        assert "dbdp.register_dataset" in rival.get("/datasets").text
        for path in ("/budgets", "/plan"):
            assert 'href="/datasets"' in rival.get(path).text.partition("<main")[2]
        for path in ("/ledger", "/models"):
            assert 'href="/plan"' in rival.get(path).text.partition("<main")[2]
        assert "Nobody was granted training" in rival.get("/allowances").text


def test_the_document_names_tests_that_there_are():
    here = Path(__file__).parent
    named = set(re.findall(r"`(test_\w+)`", (here.parents[1] / "docs" / "web.md").read_text()))
    files = [*here.glob("test_*.py"), here.parent / "rights" / "test_planted_names.py"]
    there = set(re.findall(r"^def (test_\w+)", "".join(each.read_text() for each in files), re.M))
    assert len(named) > 15
    assert named <= there


@pytest.fixture
def many(people: People) -> object:
    """A dataset with 1,000 models, written by the superuser."""
    name = f"many_{people.dataset}"
    with people.login("owner") as session:
        session.execute(f"create table {people.schema}.many as {ROWS}")
        sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 1, 1e-3)"
        session.execute(sql, (name, f"{people.schema}.many", FEATURES))
    with people.admin() as admin:
        receipt = json.dumps({"dataset": name, "algorithm": "bolt_on", "epsilon": 1, "delta": 0, "loss": "logistic"})
        admin.execute(
            "insert into dbdp.model (dataset_id, feature_names, coefficients, intercepts, declaration, receipt, "
            "released_by, released_by_id) select d.id, '{a}', '{1}', '{0}', '{}', %s, d.registered_by, "
            "d.registered_by_id from dbdp.dataset as d, generate_series(1, 1000) where d.name = %s",
            (receipt, name),
        )
        yield name
        admin.execute("delete from dbdp.model where receipt ->> 'dataset' = %s", (name,))
        admin.execute("select dbdp.drop_dataset(%s)", (name,))


@pytest.mark.slow
def test_a_thousand_models_are_searched_and_shown_by_the_page(owner, many):
    seen: list[str] = []
    address: str | None = f"/models?dataset={many}"
    while address:
        text = owner.get(address).text
        rows = [part.partition('"')[0] for part in text.split('href="/model?id=')[1:]]
        assert len(rows) <= ROWS_OF_A_PAGE
        seen += rows
        onward = text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        address = onward or None
    assert len(seen) == len(set(seen)) == 1000
    assert seen == sorted(seen, key=int, reverse=True)
    found = owner.get("/models", params={"dataset": many, "search": seen[400]}).text
    assert f"/model?id={seen[400]}" in found and "1 entry" in words(found)
    beyond = owner.get("/models", params={"dataset": many, "page": 10**6})
    assert "page 1 of" in words(beyond.text)


def test_a_bar_is_as_wide_as_what_was_spent():
    bar = parts(10.0, [("a", "role-1", 2.0, 3), ("nothing", "others", 0.0, None), ("b", "planned", 3.0, None)])
    assert [(part.label, part.start, part.width) for part in bar] == [("a", 0, 20), ("b", 20, 30), ("left", 50, 50)]
    beyond = parts(10.0, [("a", "role-1", 15.0, 1)])
    assert [(part.label, part.width, part.share) for part in beyond] == [("a", 100, 1.5), ("left", 0, 0)]


def test_what_is_exactly_left_is_enough():
    assert 0.3 - 0.2 < 0.1
    assert Rest.of(Decimal("0.3"), 0.2, 0.1).is_enough
    assert not Rest.of(0.3, 0.2, 0.1001).is_enough
    assert Rest.of(1.0, None).now == 0
    assert not Rest.of(1.0, None, 0.1).is_enough
    assert Rest.of(0.0, 0.0).share == 0


def test_many_roles_share_a_part_of_the_bar():
    budget = {"charged": 12.0, "recorded": 11.0, "unrecorded": 1.0, "charge_limit": 20.0}
    spending = [{"role": f"r{number}", "charge": 1.0, "releases": 2} for number in range(10)]
    results = {part.label: part for part in budget_bar(budget, spending, planned=2.0)}
    assert list(results) == [
        *(f"r{number}" for number in range(6)),
        *(
            "4 other roles",
            "others, with charges that you may not see",
            "rolled back or failed",
            "this training",
            "left",
        ),
    ]
    assert (results["4 other roles"].charge, results["4 other roles"].releases) == (4.0, 8)
    assert results["left"].charge == pytest.approx(6.0)
    assert budget_bar(budget | {"charged": None}, spending) == []


def test_numbers_are_written_for_a_reader():
    assert [number(value) for value in (20000, 1e-6, 0.123456, None, float("inf"))] == [
        "20,000",
        "1e-6",
        "0.1235",
        "–",
        "inf",
    ]
    assert [percent(share) for share in (0, 1e-9, 0.5, 0.99999, 1)] == [
        "0 %",
        "under 0.1 %",
        "50 %",
        "over 99.9 %",
        "100 %",
    ]
