"""Sessions of browsers, in this process's memory only.

A browser holds a random number, until the user signs out, or the session is idle for too long or too old. A restart
ends all sessions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from dbdp.interfaces.web.sign_in.links import drawn
from dbdp.interfaces.web.views.page_refusals import NoSession, Refusal

IDLE_SECONDS = 3600
LONGEST_SECONDS = 8 * 3600
WAIT_SECONDS = 20  # for other requests of the session
MOST_SESSIONS = 20


@dataclass
class BrowserSession:
    """A session of a browser."""

    csrf: str = field(repr=False)  # the number of the session's forms
    began: float  # in seconds of the clock
    used: float
    role: str  # the role that the page's connections log in as
    is_above: bool  # whether row-level security does not hold for that role
    notice: str = ""  # a sentence that the next page shows once
    warnings: list[str] = field(default_factory=list)  # warnings of the server that the next page shows once
    _turns: Lock = field(default_factory=Lock, repr=False)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run one request of the session at a time; raise Refusal if another one takes too long."""
        if not self._turns.acquire(timeout=WAIT_SECONDS):
            raise Refusal(503, "Too much at once", "Other pages that you opened are not done.", retry_after=10)
        try:
            yield
        finally:
            self._turns.release()

    def take_notice(self) -> str:
        """Return the notice and clear it."""
        notice, self.notice = self.notice, ""
        return notice

    def take_warnings(self) -> list[str]:
        """Return the warnings and clear them."""
        warnings, self.warnings = self.warnings, []
        return warnings


class Sessions:
    """The sessions of one page; safe for several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[str, BrowserSession] = {}

    def begin(self, role: str, *, is_above: bool = False) -> str:
        """Begin a session and return its number; the oldest session ends if there are too many."""
        number, now = drawn(), self._clock()
        with self._lock:
            self._forget_old()
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[number] = BrowserSession(drawn(), now, now, role, is_above)
        return number

    def find(self, number: str | None) -> BrowserSession:
        """Return the session of a number, and record its use."""
        if not number:
            raise NoSession
        with self._lock:
            self._forget_old()
            session = self._sessions.get(number)
            if session is None:
                raise NoSession("Your session was idle for an hour, or has ended.")
            session.used = self._clock()
            return session

    def end(self, number: str | None) -> None:
        """End a session, if there is one of this number."""
        with self._lock:
            self._sessions.pop(number or "", None)

    def __len__(self) -> int:
        return len(self._sessions)

    def _forget_old(self) -> None:
        now = self._clock()
        for number, each in list(self._sessions.items()):
            if now - each.used >= IDLE_SECONDS or now - each.began >= LONGEST_SECONDS:
                del self._sessions[number]
