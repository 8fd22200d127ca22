"""A visit: one request of somebody who signed in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from dbdp.interfaces.python.database import Database
from dbdp.interfaces.web.accounts.connections import Server
from dbdp.interfaces.web.accounts.sign_ins import Failures, SignedIn, SignIns
from dbdp.interfaces.web.views.refusals import Denied, NotSignedIn, closed
from dbdp.interfaces.web.views.rendering import page


@dataclass(frozen=True)
class Desk:
    """What the requests of one page share.

    Attributes
    ----------
    cookie : the name of the cookie that holds a session's number
    """

    server: Server
    sign_ins: SignIns
    failures: Failures
    cookie: str


def desk_of(request: Request) -> Desk:
    """Return what the requests share."""
    desk: Desk = request.app.state.desk
    return desk


@dataclass(frozen=True)
class Visit:
    """A request, and who sent it."""

    request: Request
    session: SignedIn

    @contextmanager
    def database(self, *, writing: bool = False) -> Iterator[Database]:
        """Give a connection of the role for this request, read-only unless it is to write; a session has one at a time.

        Raises
        ------
        NotSignedIn
            If the server takes the password no longer; the session is forgotten.
        Refusal
            If the server takes no connection for another reason, or other requests of the session take too long.
        """
        desk, session = desk_of(self.request), self.session
        try:
            with session.turn(), desk.server.acting(session.role, session.password, writing=writing) as database:
                yield database
        except Denied as denied:
            if not denied.is_certain:  # it took this password before
                raise closed() from None
            desk.sign_ins.end(self.request.cookies.get(desk.cookie))
            raise NotSignedIn("You were signed out: the server no longer takes this role's password.") from None

    def page(self, template: str, **values: Any) -> HTMLResponse:
        """Render a page for who sent the request."""
        return page(self.request, template, **values)


def _visit(request: Request) -> Visit:
    desk = desk_of(request)
    request.state.session = desk.sign_ins.find(request.cookies.get(desk.cookie))
    return Visit(request, request.state.session)


Visitor = Annotated[Visit, Depends(_visit)]
