"""Requests of signed-in roles."""

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
class Services:
    """The state that all requests of an application share.

    Attributes
    ----------
    server : Server
        The database server.
    sign_ins : SignIns
        The sessions.
    failures : Failures
        The failed attempts to sign in.
    cookie : str
        Name of the cookie that holds the number of a session.
    """

    server: Server
    sign_ins: SignIns
    failures: Failures
    cookie: str


def services_of(request: Request) -> Services:
    """Return the shared state of a request's application."""
    services: Services = request.app.state.services
    return services


@dataclass(frozen=True)
class Visit:
    """A request of a signed-in role, with its session."""

    request: Request
    session: SignedIn

    @contextmanager
    def database(self, *, writing: bool = False) -> Iterator[Database]:
        """Yield a connection of the role for this request; a session has one at a time.

        Raises
        ------
        NotSignedIn
            If the server no longer accepts the password; the session ends.
        Refusal
            If the server rejects the connection for another reason, or other requests of the session take too long.
        """
        services, session = services_of(self.request), self.session
        try:
            with session.turn(), services.server.acting(session.role, session.password, writing=writing) as database:
                yield database
        except Denied as denied:
            if not denied.is_certain:  # the server accepted this password before
                raise closed() from None
            services.sign_ins.end(self.request.cookies.get(services.cookie))
            raise NotSignedIn("You were signed out: the server no longer accepts this role's password.") from None

    def page(self, template: str, **values: Any) -> HTMLResponse:
        """Render a template for this request."""
        return page(self.request, template, **values)


def _visit(request: Request) -> Visit:
    services = services_of(request)
    request.state.session = services.sign_ins.find(request.cookies.get(services.cookie))
    return Visit(request, request.state.session)


Visitor = Annotated[Visit, Depends(_visit)]
