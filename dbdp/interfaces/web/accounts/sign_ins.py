"""Sessions of signed-in roles and the limit of failed attempts, in this process's memory only.

A browser holds a random number; name and password stay here until the user signs out, or the session is idle for too
long or too old. A restart ends all sessions.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from dbdp.interfaces.web.views.refusals import NotSignedIn, Refusal

IDLE_SECONDS = 15 * 60
LONGEST_SECONDS = 8 * 3600
WAIT_SECONDS = 20  # for other requests of the session
MOST_SESSIONS = 100
WINDOW_SECONDS = 5 * 60  # the limits of failures of a role, and of all roles, hold within this time
MOST_FAILURES, MOST_FAILURES_OF_ALL = 5, 20
_BITS = 256


@dataclass
class SignedIn:
    """A session of a signed-in role.

    Attributes
    ----------
    role, password : str
        Name and password of the role.
    csrf : str
        The number of the session's forms.
    began, used : float
        When it began and was last used, in seconds of the clock.
    notice : str
        A sentence that the next page shows once.
    """

    role: str
    password: str = field(repr=False)
    csrf: str = field(repr=False)
    began: float
    used: float
    notice: str = ""
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


class SignIns:
    """The sessions of one page; safe for several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[str, SignedIn] = {}

    def begin(self, role: str, password: str) -> str:
        """Begin a session and return its number; the oldest session ends if there are too many."""
        number, now = secrets.token_urlsafe(_BITS // 8), self._clock()
        with self._lock:
            self._forget_old()
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[number] = SignedIn(role, password, secrets.token_urlsafe(_BITS // 8), now, now)
        return number

    def find(self, number: str | None) -> SignedIn:
        """Return the session of a number, and record its use.

        Raises
        ------
        NotSignedIn
            If there is no such session, or it has ended.
        """
        if not number:
            raise NotSignedIn
        with self._lock:
            self._forget_old()
            session = self._sessions.get(number)
            if session is None:
                raise NotSignedIn("You were signed out: the session was idle for 15 minutes, or has ended.")
            session.used = self._clock()
            return session

    def end(self, number: str | None) -> None:
        """End a session, if there is one of this number."""
        with self._lock:
            self._sessions.pop(number or "", None)

    def sweep(self) -> None:
        """End sessions that are idle for too long or too old."""
        with self._lock:
            self._forget_old()

    def __len__(self) -> int:
        return len(self._sessions)

    def _forget_old(self) -> None:
        now = self._clock()
        for number, each in list(self._sessions.items()):
            if now - each.used >= IDLE_SECONDS or now - each.began >= LONGEST_SECONDS:
                del self._sessions[number]


class Failures:
    """Failed attempts to sign in, by role and in total; a role that does not exist is counted too."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._failed: list[tuple[float, str]] = []

    def count(self, role: str) -> None:
        """Count an attempt as failed, before it begins, so that attempts in parallel do not pass the limit.

        Raises
        ------
        Refusal
            If there were too many failures; this attempt must not begin.
        """
        with self._lock:
            now = self._clock()
            self._failed = [each for each in self._failed if now - each[0] < WINDOW_SECONDS]
            of_role = [when for when, who in self._failed if who == role]
            for times, most in ((of_role, MOST_FAILURES), ([w for w, _ in self._failed], MOST_FAILURES_OF_ALL)):
                if len(times) >= most:
                    raise _too_many(times[-most] + WINDOW_SECONDS - now)
            self._failed.append((now, role))

    def uncount(self, role: str) -> None:
        """Remove one attempt of a role that succeeded, or did not reach the server."""
        with self._lock:
            for place in reversed(range(len(self._failed))):
                if self._failed[place][1] == role:
                    del self._failed[place]
                    return


def _too_many(seconds: float) -> Refusal:
    wait = max(1, int(seconds) + 1)
    return Refusal(
        429,
        "Too many attempts",
        f"Too many attempts to sign in failed. Try again in {wait} seconds; until then every attempt is refused.",
        retry_after=wait,
    )
