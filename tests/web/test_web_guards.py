"""The page against other pages: forged forms, other names of the machine, markup and SQL in what is shown and sent."""

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pkgutil import iter_modules

import httpx
import pytest
from pairs import others_slow
from site_of_tests import ODD, PASSWORD, People, csrf_of, words

from dbdp.controller.training_options import options
from dbdp.interfaces.web import routes
from dbdp.interfaces.web.app import create
from dbdp.interfaces.web.guards import LARGEST_FORM
from dbdp.interfaces.web.serving import TimedProtocol

pytestmark = pytest.mark.security
MOST_READ = 2**20  # bytes: what a socket and the server's reading at a time may hold of what was sent
MOST_POURED = 50 * 2**20
LISTS = ("/datasets", "/budgets", "/ledger", "/models", "/statistics", "/allowances")
FORMS = (
    *("/allowances/grant", "/allowances/revoke", "/predictions/grant", "/predictions/revoke", "/sign-out"),
    *("/train", "/job/stop", "/score", "/describe", "/register", "/renew"),
)
SQL = ["'; select pg_sleep(60); --", "x' or '1'='1') or true -- $1 %s {} \\'"]


@pytest.fixture(scope="module")
def pages(owner: httpx.Client, people: People) -> list[tuple[str, str]]:
    """Every page of the owner's, with its address."""
    answers = [owner.get(path, params=given) for path, given in _pages(people.odd, people)]
    assert {answer.status_code for answer in answers} == {200}
    return [(str(answer.url), answer.text) for answer in answers]


def _pages(name: str, people: People) -> list[tuple[str, dict[str, object]]]:
    grant = {"dataset": name, "role": people.names["odd"]}
    lists = [(path, {}) for path in (*LISTS, "/overview", "/plan", "/register")]
    results = [(path, {"search": ODD}) for path in LISTS]
    of_dataset = [
        (path, {"dataset": name}) for path in ("/ledger", "/models", "/statistics", "/allowances", "/plan", "/describe")
    ]
    single = [
        ("/dataset", {"name": name}),
        ("/plan", {"dataset": name, "epsilon": "1"}),
        ("/plan", {"dataset": name, "epsilon": ODD, "network": ODD}),
        ("/plan", {"dataset": name, "epsilon": "1", "settings": ODD}),
        ("/plan", {"dataset": name, "epsilon": "1", "algorithm": ODD}),
        ("/model", {"id": people.models["odd"]}),
        ("/allowances/grant", grant),
        ("/allowances/revoke", grant),
        ("/predictions/grant", {"model": people.models["odd"], "role": people.names["odd"]}),
        ("/predictions/revoke", {"model": people.models["odd"], "role": ODD}),
        ("/score", {"model": people.models["odd"], "metric": ODD, "epsilon": ODD, "dataset": name}),
        ("/describe", {"dataset": ODD, "epsilon": ODD, "delta": ODD}),
        ("/renew", {"dataset": name}),
        ("/register", {"source": ODD}),
    ]
    return lists + results + of_dataset + single


def test_markup_in_names_is_shown_and_never_taken_for_markup(pages, owner, people):
    for address, text in pages:
        assert "<script" not in text.lower(), address
        assert "<b>" not in text, address
    assert sum("&lt;script&gt;" in text for _, text in pages) > 15
    renewed = owner.get("/dataset", params={"name": people.odd}).text
    assert renewed.count("alert(") >= 4  # name, table, column, reason


def test_every_answer_is_closed_to_other_pages_by_headers(owner, shared_site):
    arguments = ["/datasets", "/plan", "/static/style.css", "/nowhere", "/model?id=0", "/model?id=987654321"]
    answers = [owner.get(path) for path in arguments]
    with shared_site.browser() as client:
        answers += [client.get("/models"), client.get("/", headers={"host": "evil.example"}), client.put("/models")]
        answers += [client.post("/sign-out", headers={"origin": "null"})]
    assert {answer.status_code for answer in answers} == {200, 400, 401, 403, 404, 405}
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none';")
        assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy and "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in answer.headers


def test_a_fault_has_the_headers_too(site, monkeypatch):
    monkeypatch.setattr("dbdp.interfaces.web.routes.paged_lists.listed", None)
    with site.open() as client:
        answer = client.get("/datasets")
    assert answer.status_code == 500
    assert answer.headers["content-security-policy"].startswith("default-src 'none';")


def test_no_page_has_a_script_a_style_or_an_address_elsewhere(pages):
    for address, text in pages:
        assert not re.search(r"<[^>]+\s(on\w+|style)=", text), address
        assert not re.search(r'(?:href|src|action)="(?:https?:)?//', text), address


def test_a_foreign_name_of_this_machine_is_refused(owner):
    for host, status in (
        *(("evil.example", 400), ("127.0.0.1.evil.example", 400), ("localhost.evil.example", 400), ("evil", 400)),
        *(("xlocalhost", 400), ("127.0.0.2", 400), ("0.0.0.0", 400), ("", 400)),
        *(("localhost:9", 200), ("127.0.0.1:9000", 200), ("a-name.localhost:1", 200)),
    ):
        assert owner.get("/models", headers={"host": host}).status_code == status


def granted(people: People) -> bool:
    with people.login("owner") as session:
        sql = "select count(*) from dbdp.allowances_details where role = %s"
        return session.execute(sql, (people.names["rival"],)).fetchone() != (0,)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:1"},  # another port of this machine is another page
        {"origin": "https://{host}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_page_is_refused(shared_site, owner, people, headers):
    form = {"dataset": people.dataset, "role": people.names["rival"], "csrf": csrf_of(owner.get("/models").text)}
    host = shared_site.address.removeprefix("http://")
    sent = {name: value.format(host=host) for name, value in headers.items()}
    assert owner.post("/allowances/grant", data=form, headers=sent).status_code == 403
    assert not granted(people)


@pytest.mark.parametrize("number", [None, "", "0" * 43, "ö", "of another session"])
def test_a_form_without_the_sessions_number_is_refused(owner, analyst, people, number):
    for address in FORMS:
        form = {"dataset": people.dataset, "role": people.names["rival"], "model": str(people.models["owner"])}
        if number is not None:
            form["csrf"] = csrf_of(analyst.get("/models").text) if number == "of another session" else number
        assert owner.post(address, data=form).status_code == 403
    assert not granted(people)
    assert owner.get("/models").status_code == 200


def test_no_form_is_left_out():
    modules = [import_module(f"{routes.__name__}.{each.name}") for each in iter_modules(routes.__path__)]
    made = [route for module in modules if hasattr(module, "router") for route in module.router.routes]
    assert {route.path for route in made if "POST" in route.methods} == set(FORMS)


def test_what_changes_something_is_not_done_by_a_link(owner, people):
    arguments = {"dataset": people.dataset, "role": people.names["rival"], "csrf": csrf_of(owner.get("/models").text)}
    assert "Grant training to" in owner.get("/allowances/grant", params=arguments).text  # it asks
    assert owner.get("/sign-out", params=arguments).status_code == 405
    assert not granted(people)
    assert owner.get("/models").status_code == 200


def test_a_head_is_answered_like_a_get_without_its_body(owner, shared_site):
    for path in ("/models", "/static/style.css", "/nowhere", "/sign-out", "/model?id=987654321"):
        head, get = owner.head(path), owner.get(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
        assert head.headers["content-security-policy"].startswith("default-src 'none';")
    with shared_site.browser() as client:
        assert client.head("/models").status_code == 401
        assert client.head("/models", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_another_page_may_link_here_and_embed_nothing(owner):
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert owner.get("/models", headers=followed).status_code == 200
    for embedded in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}):
        assert owner.get("/models", headers=followed | embedded).status_code == 403


def test_a_form_of_any_size_takes_no_memory(shared_site, owner):
    def status(**body: object) -> int:
        """0 where the answer is lost, since the connection closes on what was not read."""
        with suppress(httpx.NetworkError, httpx.RemoteProtocolError), shared_site.browser() as client:
            return client.post("/sign-out", **body).status_code
        return 0

    assert status(data={"csrf": "a" * LARGEST_FORM}) in (413, 0)
    assert status(content=iter([b"csrf=a"])) in (411, 0)  # in chunks
    assert owner.post("/sign-out", data={"csrf": "a" * 2000}).status_code == 400


FORM = "POST /sign-out HTTP/1.1"
PAGE = "GET /datasets HTTP/1.1"
FRAMINGS = {  # request line, headers, status
    "a length and pieces": (FORM, ["Content-Length: 10", "Transfer-Encoding: chunked"], 400),
    "pieces and a length": (FORM, ["Transfer-Encoding: chunked", "Content-Length: 10"], 400),
    "a length of nothing, and pieces": (FORM, ["Content-Length: 0", "Transfer-Encoding: chunked"], 400),
    "pieces": (FORM, ["Transfer-Encoding: chunked"], 411),
    "pieces in HTTP/1.0": ("POST /sign-out HTTP/1.0", ["Transfer-Encoding: chunked"], 411),
    "packed pieces": (FORM, ["Transfer-Encoding: gzip, chunked"], 501),
    "pieces twice": (FORM, ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], 501),
    "pieces in capitals": (FORM, ["Transfer-Encoding: Chunked", "Content-Length: 3"], 400),
    "a coding nobody has": (FORM, ["Transfer-Encoding: xchunked"], 501),
    "two lengths": (FORM, ["Content-Length: 3", "Content-Length: 4"], 400),
    "lengths in a row": (FORM, ["Content-Length: 3, 4"], 400),
    "a length below zero": (FORM, ["Content-Length: -1"], 400),
    "a length with a sign": (FORM, ["Content-Length: +3"], 400),
    "a length in sixteens": (FORM, ["Content-Length: 0x10"], 400),
    "no digits": (FORM, ["Content-Length: "], 400),
    "digits of another script": (FORM, ["Content-Length: \u0661"], 400),
    "a long length": (FORM, [f"Content-Length: {LARGEST_FORM + 1}"], 413),
    "a length without end": (FORM, ["Content-Length: " + "9" * 5000], 400),
    "twenty nines": (FORM, ["Content-Length: " + "9" * 20], 413),
    "no length": (FORM, [], 411),
    "a page with pieces": (PAGE, ["Transfer-Encoding: chunked"], 411),
    "a page with a body": (PAGE, ["Content-Length: 70000"], 413),
    "a page with a short body": (PAGE, ["Content-Length: 3"], 413),
    "a head with a body": ("HEAD /datasets HTTP/1.1", ["Content-Length: 3"], 413),
    "a long header": (FORM, ["X: " + "a" * 100_000], 411),
}


def poured(address: str, request: list[str]) -> tuple[int, int]:
    """Send headers and then a body of pieces without end; return the status and how many bytes were taken."""
    host, port = address.removeprefix("http://").split(":")
    piece, taken, answer = b"10000;x=y\r\n" + b"a" * 65536 + b"\r\n", 0, b""
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join([*request, "", ""]).encode())
        with suppress(OSError):
            while taken < MOST_POURED:
                taken += connection.send(piece[taken % len(piece) :])
        with suppress(OSError):
            while part := connection.recv(65536):
                answer += part
    return int(answer.split(b" ", 2)[1] if answer else 0), taken


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the bytes that the web server reads."""
    read: list[int] = []
    received = TimedProtocol.data_received

    def counting(protocol: TimedProtocol, data: bytes) -> None:
        read.append(len(data))
        received(protocol, data)

    monkeypatch.setattr(TimedProtocol, "data_received", counting)
    yield read


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.attack("request-length")
def test_a_request_of_doubtful_length_is_refused_unread(shared_site, monkeypatch, framing):
    line, headers, status = FRAMINGS[framing]
    request = [line, f"Host: {shared_site.address.removeprefix('http://')}", f"Origin: {shared_site.address}", *headers]
    with counted(monkeypatch) as read:
        found, _ = poured(shared_site.address, request)
    # where the answer is lost as the connection closes on what was still on its way, the bytes that were read tell
    assert found in (status, 400, 0)
    assert sum(read) < MOST_READ


@pytest.mark.slow
@pytest.mark.attack("request-length")
def test_without_the_guard_a_body_is_read_without_end(site, monkeypatch):
    """The control: what the guard sees of the length is taken away."""
    monkeypatch.setattr("dbdp.interfaces.web.guards._oversized", lambda _request: None)
    request = [FORM, f"Host: {site.address.removeprefix('http://')}", f"Origin: {site.address}"]
    with counted(monkeypatch) as read:
        _, taken = poured(site.address, [*request, "Content-Length: 10", "Transfer-Encoding: chunked"])
    assert min(sum(read), taken) > 10 * MOST_READ


@pytest.mark.attack("request-length")
def test_the_guard_refuses_every_doubtful_length_unread():
    """At the interface of applications, whatever web server is in front."""
    for line, headers, _ in FRAMINGS.values():
        method, path, _version = line.split(" ")
        raw = [tuple(part.strip().encode() for part in each.lower().split(":", 1)) for each in headers]
        sent, app = [], create("postgresql://nowhere.invalid/")
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"headers": [(b"host", b"localhost"), (b"origin", b"http://localhost"), *raw], "scheme": "http"}
        scope |= {"http_version": "1.1", "server": ("localhost", 80), "client": ("127.0.0.1", 1), "root_path": ""}

        async def receive() -> dict[str, object]:
            raise AssertionError("the body was asked for")

        async def send(message: dict[str, object], sent: list[dict[str, object]] = sent) -> None:
            sent.append(message)

        asyncio.run(app(scope, receive, send))
        assert sent[0]["status"] in (400, 411, 413)
        assert (b"connection", b"close") in sent[0]["headers"]


@pytest.mark.parametrize(
    "begun",
    [
        "",
        "GET / HTTP/1.1\r\nX: ",
        "POST /sign-out HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 100\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\ncsrf=a",
    ],
    ids=["silence", "headers", "body"],
)
@pytest.mark.attack("slow-request")
def test_a_request_that_does_not_arrive_is_not_waited_for(site, monkeypatch, begun):
    """Send each byte within the time limit, and the request beyond it."""
    monkeypatch.setattr("dbdp.interfaces.web.serving.REQUEST_SECONDS", 0.5)
    host = site.address.removeprefix("http://")
    name, port = host.split(":")
    with socket.create_connection((name, int(port)), timeout=30) as connection:
        connection.sendall(begun.format(host=host).encode())
        with suppress(OSError):
            for _ in range(300 if begun else 0):
                connection.sendall(b"a")
                connection.settimeout(0.1)
                with suppress(TimeoutError):
                    assert connection.recv(1) == b""
                    break
            else:
                connection.settimeout(30)
                assert connection.recv(1) == b""
    with site.browser() as client:
        assert client.get("/datasets").status_code == 401


@pytest.mark.parametrize("sql", others_slow(SQL, SQL[0]))
def test_sql_in_a_field_is_text(owner, people, sql):
    for path in ("/datasets", "/budgets", "/ledger", "/models", "/allowances"):
        answer = owner.get(path, params={"search": sql})
        assert answer.status_code == 200
        assert "Nothing here matches" in words(answer.text), path
    for path in ("/ledger", "/models", "/allowances"):
        assert "<td" not in owner.get(path, params={"dataset": sql}).text
    assert owner.get("/dataset", params={"name": sql}).status_code == 404
    for path, name in (("/datasets", "page"), ("/model", "id")):
        assert owner.get(path, params={name: sql}).status_code == 400
    form = {"dataset": people.dataset, "role": people.names["rival"], "csrf": csrf_of(owner.get("/models").text)}
    for changed in ({"dataset": sql}, {"role": sql}):
        for path in ("/allowances/grant", "/allowances/revoke"):
            assert owner.post(path, data=form | changed).status_code == 400, (path, changed)
    assert owner.post("/allowances/grant", data=form | {"epsilon": sql}).status_code == 400
    assert not granted(people)


def test_sql_in_a_number_is_refused_in_its_field(owner, people):
    names = [each.name for each, kind in options() if kind is not str]
    answer = owner.get("/plan", params={"dataset": people.dataset} | dict.fromkeys(names, SQL[0]))
    assert answer.status_code == 200
    assert answer.text.count('class="wrong"') == len(names) > 10


@pytest.mark.slow
def test_sql_in_an_option_that_is_text_is_refused_by_dbdp(owner, people):
    for name in [each.name for each, kind in options() if kind is str]:
        answer = owner.get("/plan", params={"dataset": people.dataset, "epsilon": "1", name: SQL[0]})
        assert answer.status_code == 200
        assert "What it would cost" not in answer.text
        assert "dbdp refused this" in words(answer.text)


def test_the_sql_of_a_plan_quotes_its_values(analyst, people):
    answer = analyst.get(
        "/plan", params={"dataset": people.dataset, "epsilon": "1", "algorithm": "bolt_on", "schedule": "square_root"}
    )
    assert f"dp_train(&#39;{people.dataset}&#39;, epsilon =&gt; 1.0, delta =&gt; 0.0" in answer.text
    assert "schedule =&gt; &#39;square_root&#39;" in answer.text


def test_the_page_refuses_an_option_that_auto_lacks(analyst, people):
    params = {"dataset": people.dataset, "epsilon": "1", "delta": "1e-6", "settings": "", "batch_size": "20"}
    shown = words(analyst.get("/plan", params=params).text)
    assert "dbdp refused this" in shown and "or use algorithm bolt_on" in shown and "What it would cost" not in shown
    named = words(analyst.get("/plan", params=params | {"algorithm": "bolt_on"}).text)
    assert "dbdp refused this" not in named


def test_no_address_of_the_page_holds_a_secret(pages, owner):
    for address, text in pages:
        assert csrf_of(text) not in "".join(re.findall(r'href="([^"]*)"', text)), address
        assert PASSWORD not in text, address
        assert not any(cookie in text for cookie in owner.cookies.values()), address
