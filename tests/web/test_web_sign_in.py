"""Signing in to the page: whom it lets in, what it keeps, and for how long."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import psycopg
import pytest
from commands import run_here
from site_of_tests import PASSWORD, People, Site, csrf_of, words

from dbdp.interfaces.web.accounts.connections import Server
from dbdp.interfaces.web.accounts.sign_ins import (
    IDLE_SECONDS,
    LONGEST_SECONDS,
    MOST_FAILURES,
    MOST_FAILURES_OF_ALL,
    MOST_SESSIONS,
    WINDOW_SECONDS,
    SignIns,
)
from dbdp.interfaces.web.serving import listen
from dbdp.interfaces.web.views.refusals import NotSignedIn, Refusal

pytestmark = pytest.mark.security


def attempt(site: Site, role: str, password: str = "wrong") -> httpx.Response:
    with site.browser() as client:
        return client.post("/sign-in", data={"role": role, "password": password})


def test_a_role_signs_in_with_its_password_and_sees_its_name(site, people):
    with site.sign_in(people.names["owner"]) as client:
        assert people.names["owner"] in client.get("/datasets").text


def test_a_wrong_password_and_an_unknown_role_get_the_same_answer(site, people):
    wrong = attempt(site, people.names["owner"])
    unknown = attempt(site, "nobody_of_that_name")
    assert wrong.status_code == unknown.status_code == 403
    assert wrong.text.replace(people.names["owner"], "") == unknown.text.replace("nobody_of_that_name", "")
    assert not wrong.cookies and not unknown.cookies


def test_a_role_that_the_server_lets_in_without_a_password_cannot_sign_in(site, people):
    with people.admin() as admin:
        superuser, asked = admin.info.user, admin.pgconn.used_password
    if asked:
        pytest.skip("this server asks its superuser for a password")
    for password in ("anything", ""):  # by peer authentication anybody would be the superuser
        assert attempt(site, superuser, password).status_code == 403


def test_a_superuser_cannot_sign_in_with_the_right_password_either(site, people):
    name = f"{people.names['owner']}_root"
    with people.admin() as admin:
        admin.execute(f"create role {name} login superuser password '{PASSWORD}'")
        answer = attempt(site, name, PASSWORD)
        admin.execute(f"drop role {name}")
    assert answer.status_code == 403
    assert "dbdp_data_owner" in words(answer.text)
    assert len(site.app.state.services.sign_ins) == 0


@pytest.mark.parametrize("name", ["a\0b", "", "x' user=postgres", "x\nuser=postgres", "ö" * 200])
def test_no_odd_name_reaches_the_connection_string(site, name):
    assert attempt(site, name, PASSWORD).status_code == 403


def test_the_cookie_is_random_and_for_this_page_alone(site, people):
    cookies = []
    for _ in range(2):
        answer = attempt(site, people.names["owner"], PASSWORD)
        value, *flags = answer.headers["set-cookie"].split("; ")
        assert {flag.lower() for flag in flags} == {"httponly", "samesite=strict", "path=/"}
        cookies.append(value)
        assert PASSWORD not in value and people.names["owner"] not in value
    assert len(set(cookies)) == 2
    assert all(len(cookie.partition("=")[2]) >= 43 for cookie in cookies)  # 256 bits


def test_signing_in_again_ends_the_former_session(site, people):
    with site.sign_in(people.names["owner"]) as client:
        former = dict(client.cookies)
        client.post("/sign-in", data={"role": people.names["owner"], "password": PASSWORD})
        assert client.get("/datasets").status_code == 200
        with site.browser() as other:
            other.cookies.update(former)
            assert other.get("/datasets").status_code == 401


def test_a_request_without_a_session_leads_to_the_sign_in_and_back(site, people):
    with site.browser() as client:
        asked = client.get("/ledger", params={"dataset": people.dataset})
        assert asked.status_code == 401
        assert f'value="/ledger?dataset={people.dataset}"' in asked.text
        form = {"role": people.names["owner"], "password": PASSWORD, "onward": f"/ledger?dataset={people.dataset}"}
        assert client.post("/sign-in", data=form).headers["location"] == f"/ledger?dataset={people.dataset}"


@pytest.mark.parametrize(
    "elsewhere", ["//evil.example/", "https://evil.example/", "/\\evil.example", "/\r\nSet-Cookie: a"]
)
def test_nobody_is_sent_elsewhere_after_signing_in(site, people, elsewhere):
    form = {"role": people.names["owner"], "password": PASSWORD, "onward": elsewhere}
    with site.browser() as client:
        assert client.post("/sign-in", data=form).headers["location"] == "/datasets"


def test_a_session_ends_when_it_is_idle(site, people):
    with site.sign_in(people.names["owner"]) as client:
        for _ in range(3):
            site.clock.now += IDLE_SECONDS - 1
            assert client.get("/models").status_code == 200
        site.clock.now += IDLE_SECONDS
        assert client.get("/models").status_code == 401
    assert len(site.app.state.services.sign_ins) == 0


def test_a_session_ends_when_it_is_old_however_busy(site, people):
    with site.sign_in(people.names["owner"]) as client:
        begun = site.clock.now
        while site.clock.now + 600 < begun + LONGEST_SECONDS:
            site.clock.now += 600
            assert client.get("/allowances/revoke", params={"dataset": "d", "role": "r"}).status_code == 200
        site.clock.now = begun + LONGEST_SECONDS
        assert client.get("/models").status_code == 401


def test_the_oldest_session_ends_where_there_are_too_many():
    sign_ins = SignIns(lambda: 0.0)
    numbers = [sign_ins.begin("role", PASSWORD) for _ in range(MOST_SESSIONS + 1)]
    assert len(sign_ins) == MOST_SESSIONS
    assert sign_ins.find(numbers[1]).role == "role"
    with pytest.raises(NotSignedIn):
        sign_ins.find(numbers[0])


def test_a_sweep_forgets_a_password_without_a_request(site, people):
    sign_ins = site.app.state.services.sign_ins
    with site.sign_in(people.names["owner"]):
        sign_ins.sweep()
        assert len(sign_ins) == 1
    site.clock.now += IDLE_SECONDS
    sign_ins.sweep()
    assert len(sign_ins) == 0


def test_signing_out_forgets_the_session(site, people):
    with site.sign_in(people.names["owner"]) as client:
        number = dict(client.cookies)
        answer = client.post("/sign-out", data={"csrf": csrf_of(client.get("/models").text)})
        assert answer.headers["location"] == "/sign-in"
        client.cookies.update(number)
        assert client.get("/models").status_code == 401
    assert len(site.app.state.services.sign_ins) == 0


def test_a_changed_password_ends_the_session(site, people):
    name = people.names["rival"]
    with site.sign_in(name) as client, people.admin() as admin:
        admin.execute(f"alter role {name} password 'another'")
        answer = client.get("/models")
        admin.execute(f"alter role {name} password '{PASSWORD}'")
        assert answer.status_code == 401
        assert client.get("/models").status_code == 401


def test_a_role_is_locked_out_after_some_failures_and_let_in_again_later(site, people):
    name = people.names["owner"]
    assert [attempt(site, name).status_code for _ in range(MOST_FAILURES)] == [403] * MOST_FAILURES
    late = attempt(site, name, PASSWORD)
    assert late.status_code == 429
    assert 0 < int(late.headers["retry-after"]) <= WINDOW_SECONDS + 1
    assert attempt(site, people.names["analyst"], PASSWORD).status_code == 303  # others are not
    site.clock.now += WINDOW_SECONDS
    assert attempt(site, name, PASSWORD).status_code == 303


def test_many_names_are_no_way_around_the_limit(site):
    results = [attempt(site, f"role_{number}").status_code for number in range(MOST_FAILURES_OF_ALL + 3)]
    assert results == [403] * MOST_FAILURES_OF_ALL + [429] * 3


def test_many_attempts_at_once_are_no_way_around_the_limit(site, people):
    with ThreadPoolExecutor(20) as pool:
        result = list(pool.map(lambda _: attempt(site, people.names["owner"]).status_code, range(20)))
    assert sorted(result) == [403] * MOST_FAILURES + [429] * (20 - MOST_FAILURES)


def test_right_passwords_are_never_too_many(site, people):
    for _ in range(MOST_FAILURES + 2):
        assert attempt(site, people.names["owner"], PASSWORD).status_code == 303


def test_a_lost_server_is_reported_and_ends_no_session(site, people):
    services = site.app.state.services
    with site.sign_in(people.names["owner"]) as client:
        site.app.state.services = replace(services, server=Server("postgresql:///none?host=/nonexistent"))
        for _ in range(MOST_FAILURES + 1):  # nor is it a failure of who signs in
            assert attempt(site, people.names["owner"], PASSWORD).status_code == 503
        answer = client.get("/datasets")
        assert answer.status_code == 503
        assert "does not answer" in words(answer.text)
        site.app.state.services = services
        assert client.get("/datasets").status_code == 200


@pytest.fixture
def narrow(people: People) -> Iterator[str]:
    """A role that may have one connection."""
    name = people.names["rival"]
    with people.admin() as admin:
        admin.execute(f"alter role {name} connection limit 1")
        yield name
        admin.execute(f"alter role {name} connection limit -1")


def test_requests_at_once_take_one_connection_of_a_session(site, narrow):
    with site.sign_in(narrow) as client, ThreadPoolExecutor(4) as pool:
        result = list(pool.map(lambda _: client.get("/models").status_code, range(8)))
    assert result == [200] * 8


def test_a_connection_limit_ends_no_session_and_is_not_a_failed_sign_in(site, people, narrow, monkeypatch):
    monkeypatch.setattr("dbdp.interfaces.web.accounts.connections._PAUSES", ())
    with people.login("rival") as other:
        for _ in range(MOST_FAILURES + 1):
            answer = attempt(site, narrow, PASSWORD)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    monkeypatch.undo()
    with site.sign_in(narrow) as client:
        with people.login("rival") as other:
            answer = client.get("/models")
            assert answer.status_code == 503
            assert "No connection is free" in words(answer.text)
            assert not other.closed
        assert client.get("/models").status_code == 200


def test_a_role_that_may_not_connect_to_the_database_sees_why(site, people):
    name = people.names["rival"]
    with site.sign_in(name) as client, people.admin() as admin:
        database = admin.info.dbname
        admin.execute(f'revoke connect on database "{database}" from public')
        found = client.get("/models"), attempt(site, name, PASSWORD)
        wrong = attempt(site, name)
        admin.execute(f'grant connect on database "{database}" to public')
        assert client.get("/models").status_code == 200
    assert [answer.status_code for answer in found] == [503, 503]
    assert "grant connect" in words(found[0].text)
    assert wrong.status_code == 403


def test_words_that_are_not_understood_count_as_a_failure_and_end_no_session(site, people, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("FATAL:  Passwort-Authentifizierung für Benutzer »jemand« fehlgeschlagen")

    with site.sign_in(people.names["owner"]) as client:
        monkeypatch.setattr("psycopg.connect", refused)
        assert client.get("/models").status_code == 503
        results = [attempt(site, people.names["owner"]).status_code for _ in range(MOST_FAILURES + 1)]
        monkeypatch.undo()
        assert results == [403] * MOST_FAILURES + [429]
        assert client.get("/models").status_code == 200


def test_a_request_waits_for_another_of_its_session_but_not_forever(monkeypatch):
    monkeypatch.setattr("dbdp.interfaces.web.accounts.sign_ins.WAIT_SECONDS", 0.01)
    sign_ins = SignIns(lambda: 0.0)
    session, other = (sign_ins.find(sign_ins.begin("role", PASSWORD)) for _ in range(2))
    with session.turn(), other.turn(), pytest.raises(Refusal, match="Too much at once"), session.turn():
        pass
    with session.turn():
        pass


def test_a_user_and_a_password_in_the_url_are_not_used(people):
    info = psycopg.conninfo.conninfo_to_dict(people.url)
    server = Server(psycopg.conninfo.make_conninfo("", **info | {"password": PASSWORD, "user": "somebody"}))
    assert PASSWORD not in vars(server)["_conninfo"]
    assert "somebody" not in vars(server)["_conninfo"]


def test_no_secret_is_logged_even_by_a_fault(site, people, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    with site.sign_in(people.names["owner"]) as client:
        attempt(site, people.names["owner"], "mistyped-password")
        number = csrf_of(client.get("/datasets").text)

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("a fault of the tests")

        monkeypatch.setattr("dbdp.interfaces.web.routes.lists.listed", broken)
        answer = client.get("/datasets")
        assert answer.status_code == 500
        assert "a fault of the tests" not in answer.text
        secrets = [PASSWORD, "mistyped-password", number, *client.cookies.values()]
    logged = [record for record in caplog.records if not record.name.startswith("http")]  # those are the client's
    told = "\n".join(logging.Formatter().format(record) for record in logged)
    assert "a fault of the tests" in told
    assert not any(secret in told for secret in secrets)
    session = next(iter(vars(site.app.state.services.sign_ins)["_sessions"].values()))
    assert PASSWORD not in repr(session) and number not in repr(session)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "localhost.example", "::ffff:0.0.0.0", ""])
def test_it_listens_on_no_address_but_this_machines_own(host):
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        listen(host, 0)


def test_a_port_that_is_in_use_is_reported_with_the_remedy():
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(OSError, match="--port"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_the_command_refuses_another_address_in_one_line():
    done = run_here("web", "--url", "postgresql:///x", "--host", "0.0.0.0")
    assert done.returncode == 1
    assert "127.0.0.1" in done.stderr


def test_without_the_extra_the_command_names_what_to_install():
    without = "import sys; sys.modules['fastapi'] = None; sys.argv = ['dbdp', 'web']"
    code = f"{without}; from dbdp.interfaces.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "pip install 'dbdp[web]'" in done.stderr
