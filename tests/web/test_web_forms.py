"""What the forms do: trainings, scores, registrations, renewals, and grants of prediction."""

import re
import secrets
import time
from html import unescape

import pytest
from pairs import others_slow
from site_of_tests import ROWS, csrf_of, served, visiting, words

from dbdp.interfaces.web.routes import plan_form, register_form
from dbdp.interfaces.web.sign_in.background import Job, Jobs
from dbdp.interfaces.web.sign_in.database_server import DatabaseServer
from dbdp.interfaces.web.views.page_refusals import Refusal


def fields_of(page, action):
    """The hidden fields of a form."""
    form = re.search(rf'<form[^>]*method="post" action="{action}".*?</form>', page, re.DOTALL)
    assert form, page
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form[0])}


def ended(client, answer):
    """The answer of the page of a job when it has ended."""
    assert answer.status_code == 303, answer.text
    for _ in range(600):
        shown = client.get(answer.headers["location"])
        if "refresh" not in shown.headers:
            return shown
        time.sleep(0.1)
    raise AssertionError("it has not ended")


def releases(session, dataset):
    return session.execute("select releases from dbdp.budget_details(%s)", (dataset,)).fetchone()[0]


def test_an_empty_plan_begins_with_what_can_be_planned(owner, people, as_owner):
    units = "coalesce(capacity, rows / coalesce(max_rows, 1))"
    sql = f"select epsilon, delta, {units} from dbdp.datasets_details where name = %s"
    epsilon, delta, units = as_owner.execute(sql, (people.dataset,)).fetchone()
    text = owner.get("/plan", params={"dataset": people.dataset}).text
    values = {name: re.search(rf'name="{name}" value="([^"]*)"', text)[1] for name in ("epsilon", "delta")}
    assert float(values["epsilon"]) == min(1, epsilon)
    assert float(values["delta"]) * 10 <= min(1 / units, delta) <= float(values["delta"]) * 100 or delta == 0
    assert "<option selected>auto</option>" in text
    planned = words(owner.get("/plan", params={"dataset": people.dataset} | values).text)
    assert "What it would cost" in planned and "Warning: delta" not in planned
    first, _, folded = text.partition("<details>")
    assert [name for name in ("epsilon", "delta", "algorithm", "loss", "epochs") if f'name="{name}"' in first] == [
        "epsilon",
        "delta",
        "algorithm",
    ]
    assert 'name="loss"' in folded


@pytest.mark.parametrize(
    ("facts", "epsilon", "delta", "loss"),
    [
        ({"epsilon": 4, "delta": 1e-5, "units": 25000, "is_number": False}, "1", "1e-06", ""),
        ({"epsilon": 0.5, "delta": 1e-3, "units": 100000, "is_number": True}, "0.5", "1e-06", ""),
        ({"epsilon": 2, "delta": 1e-3, "units": 999999, "is_number": False}, "1", "1e-07", ""),
        ({"epsilon": 2, "delta": 0, "units": 10, "is_number": False}, "1", "0", ""),
    ],
)
def test_what_a_plan_begins_with_follows_from_public_facts(facts, epsilon, delta, loss):
    fields, _ = plan_form.read({})
    texts = {field.name: field.text for field in plan_form.suggested(fields, facts)}
    assert (texts["epsilon"], texts["delta"], texts["loss"], texts["algorithm"]) == (epsilon, delta, loss, "auto")


def test_a_plans_button_pressed_twice_trains_once(owner, people, as_owner, monkeypatch):
    monkeypatch.setattr("dbdp.controller.requests.train", None)  # no row reaches the page's process
    before = releases(as_owner, people.dataset)
    asked = {"dataset": people.dataset, "epsilon": "0.5", "batch_size": "20", "epochs": "2", "algorithm": "bolt_on"}
    form = fields_of(owner.get("/plan", params=asked).text, "/train")
    answers = [owner.post("/train", data=form) for _ in range(2)]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    done = ended(owner, answers[0])
    assert done.status_code == 303
    text = words(owner.get(done.headers["location"]).text)
    assert f"The training on {people.dataset} released this model" in text
    assert "bolt_on" in text and "of only this release" in text
    assert releases(as_owner, people.dataset) == before + 1


def test_a_training_beyond_the_budget_costs_nothing(owner, people, as_owner):
    before = releases(as_owner, people.dataset)
    plans = [owner.get("/plan", params={"dataset": people.dataset, "epsilon": size}).text for size in ("99", "0.1")]
    assert ['class="bar"' in plan for plan in plans] == [False, True]
    form = {"csrf": csrf_of(owner.get("/plan").text), "number": secrets.token_hex(8), "dataset": people.dataset}
    shown = ended(owner, owner.post("/train", data=form | {"epsilon": "99"}))
    assert shown.status_code == 200
    assert "dbdp refused this" in words(shown.text)
    assert releases(as_owner, people.dataset) == before
    assert owner.post("/train", data=form | {"epsilon": "x"}).status_code == 400


def test_a_job_is_stopped_and_two_do_not_run_at_once(people):
    jobs = Jobs(DatabaseServer(people.url_of("owner")))
    job = jobs.start("1", "It", lambda database: database.query("select pg_sleep(600)"))
    with pytest.raises(Refusal) as refused:
        jobs.start("2", "Another", lambda _: None)
    assert refused.value.status == 409
    assert jobs.start("1", "It again", lambda _: None) is job
    while not job.is_done:  # a cancel before its statement began is lost
        job.stop()
        time.sleep(0.05)
    assert job.result is None and job.refusal.title == "The server stopped it"
    assert jobs.running() is None


class Ending(Job):
    """A job that ends after the first look at whether it has."""

    _looks = 0

    @property
    def is_done(self) -> bool:
        self._looks += 1
        return self._looks > 1

    @is_done.setter
    def is_done(self, value: bool) -> None:
        pass


def test_a_job_that_just_ended_is_shown_by_the_next_look(owner, people, monkeypatch):
    job = Ending("1", "The training", result={"released": "model", "onward": f"/model?id={people.models['owner']}"})
    monkeypatch.setattr(Jobs, "find", lambda *_: job)
    first, second = owner.get("/job?number=1"), owner.get("/job?number=1")
    assert first.status_code == 200 and "refresh" in first.headers
    assert second.status_code == 303


def test_what_runs_is_stopped_when_the_page_ends(people):
    with served(people.url_of("owner")) as site:
        job = site.app.state.services.jobs.start("1", "It", lambda database: database.query("select pg_sleep(600)"))
        with people.admin() as admin:
            sql = "select from pg_stat_activity where usename = %s and state = 'active' and query like '%%pg_sleep%%'"
            while not admin.execute(sql, (people.names["owner"],)).fetchall():
                time.sleep(0.02)
    job.wait(60)
    assert job.is_done and job.refusal.title == "The server stopped it"


def test_the_score_of_a_model_is_charged_once_and_shows_its_roc(owner, people, as_owner):
    before = releases(as_owner, people.dataset)
    asked = {"model": people.models["owner"], "dataset": people.dataset, "metric": "auc", "epsilon": "20"}
    page = owner.get("/score", params=asked).text
    assert "part of the budget 20 %" in words(page)
    assert releases(as_owner, people.dataset) == before
    form = fields_of(page, "/score")
    shown = ended(owner, owner.post("/score", data=form))
    again = ended(owner, owner.post("/score", data=form))
    assert "ROC curve from noisy counts" in shown.text and shown.text == again.text
    assert releases(as_owner, people.dataset) == before + 1


@pytest.fixture
def table(people):
    """A table of the owner's that is not registered, with a label of text."""
    name = f"{people.schema}.fresh_{secrets.token_hex(3)}"
    with people.login("owner") as session:
        session.execute(f'create table {name} as select x[1] as a, y::text as b, x, y as "c\'<b>" from ({ROWS}) as r')
        yield name
        session.execute("select dbdp.drop_dataset(name) from dbdp.datasets_details where source = %s", (name,))
        session.execute(f"drop table {name}")


def registration(client, table):
    page = client.get("/register", params={"source": table}).text
    return fields_of(page, "/register") | {"name": table.partition(".")[2], "label": "b", "positive": "1"}


def test_a_table_is_registered_by_the_fields_of_its_columns(owner, as_owner, table):
    form = registration(owner, table)
    assert (form["column_0"], form["column_3"]) == ("a", "c'<b>")
    form |= {"lower_0": "0", "upper_0": "1", "values_3": '0, "1"', "epsilon": "2", "delta": "1e-4", "capacity": "90"}
    answer = owner.post("/register", data=form)
    assert answer.status_code == 303, words(answer.text)
    assert "is registered" in words(owner.get(answer.headers["location"]).text)
    sql = "select declaration -> 'features', epsilon, capacity from dbdp.datasets_details where name = %s"
    declared, epsilon, capacity = as_owner.execute(sql, (form["name"],)).fetchone()
    assert set(declared) == {"a", "c'<b>"} and declared["a"] == [0, 1]
    assert (epsilon, capacity) == (2, 90)


def test_a_plan_asks_for_the_models_name(owner, people, as_owner):
    """A plan asks for the name of the model beside its epsilon and the training uses it."""
    name = f"page_{secrets.token_hex(4)}"
    page = owner.get("/plan", params={"dataset": people.dataset, "epsilon": "0.1", "name": name}).text
    assert page.index('id="name"') < page.index("More options") < page.index('id="loss"')
    ended(owner, owner.post("/train", data=fields_of(page, "/train")))
    sql = "select name, version from dbdp.models where name = %s"
    assert as_owner.execute(sql, (name,)).fetchall() == [(name, 1)]


@pytest.mark.parametrize(("delta", "is_warned"), [("0.5", True), ("1e-4", False)])
def test_a_warning_of_the_server_is_shown_once(owner, table, delta, is_warned):
    form = registration(owner, table) | {"lower_0": "0", "upper_0": "1", "epsilon": "2", "capacity": "90"}
    answer = owner.post("/register", data=form | {"delta": delta})
    first, again = (words(owner.get(answer.headers["location"]).text) for _ in range(2))
    assert ("Warning: delta = 0.5 is at least 1/90" in first) == is_warned
    assert "Warning" not in again


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"lower_0": "x"}, "lower of a = 'x' is not a number"),
        ({"upper_0": ""}, "the bounds of a have one end"),
        ({"delta": ""}, "delta is empty"),
        ({"delta": "2"}, "delta = 2"),
        ({"features": "["}, "the features are not JSON"),
        ({"source": "pg_catalog.pg_class"}, "owns no such table"),
        ({"source": "'; select 1 --"}, "owns no such table"),
    ],
)
def test_a_refused_registration_shows_what_was_typed(owner, as_owner, table, changed, shown):
    form = registration(owner, table) | {"lower_0": "0", "upper_0": "1", "epsilon": "2", "delta": "1e-4"}
    answer = owner.post("/register", data=form | changed)
    assert answer.status_code == 400
    assert shown in words(unescape(answer.text))
    if "source" not in changed:
        assert f'value="{form["name"]}"' in answer.text
    assert not as_owner.execute("select from dbdp.datasets_details where name = %s", (form["name"],)).fetchall()


def test_a_table_of_another_role_is_not_offered(people, table):
    with visiting(people, "rival") as client:
        page = client.get("/register", params={"source": table}).text
    assert "column_0" not in page and f"<option>{table}</option>" not in page


def test_values_in_quotes_may_have_commas():
    assert register_form._several('red, "dark, blue" , ') == ["red", "dark, blue"]
    assert register_form._several(" ") == []


def test_a_budget_is_renewed_by_its_owner_with_a_reason(owner, analyst, people, as_owner):
    sql = "select reason, epsilon from dbdp.datasets_details where name = %s"
    form = fields_of(owner.get("/renew", params={"dataset": people.odd}).text, "/renew")
    assert owner.post("/renew", data=form | {"reason": " "}).status_code == 400
    assert owner.post("/renew", data=form | {"reason": "r", "epsilon": "x"}).status_code == 400
    assert owner.post("/renew", data=form | {"reason": "of <b>tests", "epsilon": "7"}).status_code == 303
    assert as_owner.execute(sql, (people.odd,)).fetchone() == ("of <b>tests", 7)
    assert analyst.get("/renew", params={"dataset": people.dataset}).status_code == 403
    form = {"csrf": csrf_of(analyst.get("/models").text), "dataset": people.dataset, "reason": "r"}
    assert analyst.post("/renew", data=form).status_code == 403


NO_NUMBERS = [{"epsilon": "x"}, {"delta": "1e-6 or less"}, {"capacity": "1e6"}]


@pytest.mark.parametrize("changed", others_slow(NO_NUMBERS, NO_NUMBERS[1]))
def test_what_is_no_number_is_named_and_renews_nothing(owner, people, as_owner, changed):
    sql = "select registrations from dbdp.budget_details(%s)"
    before = as_owner.execute(sql, (people.dataset,)).fetchone()
    page = owner.get("/renew", params={"dataset": people.dataset}).text
    answer = owner.post("/renew", data=fields_of(page, "/renew") | {"reason": "quarter 2"} | changed)
    ((name, text),) = changed.items()
    assert answer.status_code == 400
    assert f"{name} = '{text}' is not a" in words(unescape(answer.text))
    assert as_owner.execute(sql, (people.dataset,)).fetchone() == before


def test_prediction_is_granted_and_revoked_after_a_look(owner, people):
    model, rival = people.models["owner"], people.names["rival"]
    asked = {"model": model, "role": rival}
    with visiting(people, "rival") as other:
        for action, status in (("grant", 200), ("revoke", 404)):
            form = fields_of(owner.get(f"/predictions/{action}", params=asked).text, f"/predictions/{action}")
            answer = owner.post(f"/predictions/{action}", data=form)
            text = words(owner.get(answer.headers["location"]).text)
            assert (f"{rival} – Revoke" in text) == (action == "grant")
            assert other.get("/model", params={"id": model}).status_code == status
        refused = other.post("/predictions/grant", data=asked | {"csrf": csrf_of(other.get("/models").text)})
        assert f"model &#39;{model}&#39; does not exist" in words(refused.text)


def test_a_stranger_may_not_grant_prediction(owner, people, as_owner):
    """Who neither released a model nor owns its dataset may not grant prediction."""
    model, odd = people.models["owner"], people.names["odd"]
    as_owner.execute("select dbdp.grant_prediction(%s, %s)", (model, odd))
    with visiting(people, "odd") as client:
        page = client.get("/model", params={"id": model}).text
        assert "Grant prediction to" not in page
        asked = {"model": model, "role": odd}
        answer = client.post("/predictions/grant", data=asked | {"csrf": csrf_of(page)})
        assert answer.status_code == 400
        assert "only that role, or the one that registered its dataset, may grant prediction" in words(answer.text)
    as_owner.execute("select dbdp.revoke_prediction(%s, %s)", (model, odd))


def test_the_overview_shows_what_is_left_and_the_last_charges(owner, people, as_owner):
    text = words(owner.get("/overview").text)
    share = as_owner.execute("select left_share from dbdp.budget_details(%s)", (people.dataset,)).fetchone()[0]
    assert re.search(rf"{people.dataset} [\d.]+ % of ε = 100", text), share
    assert people.names["analyst"] in text.partition("Last charges")[2]
