"""Progress bars of long work, drawn by rich on a terminal only.

A stage with parts (a shuffle, epochs, candidates) shows how many are done and estimates the time left from them. A
training that runs in the server is one statement, whose progress is unknown: its bar moves to and fro and shows the
time elapsed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from dbdp.algorithms.rows import Progress as Report
from dbdp.algorithms.rows import silent
from dbdp.interfaces.terminal import Terminal


class _Count(ProgressColumn):
    """Shows how many parts of a stage are done; empty for a stage without parts."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total in (None, 1) else f"{task.completed:.0f}/{task.total:.0f}")


class _Left(ProgressColumn):
    """Shows the estimated time left, once one part is done.

    rich's own column uses the last 30 s only, so that it estimates nothing where an epoch takes longer.
    """

    def render(self, task: Task) -> Text:
        seconds = seconds_left(task.completed, task.total, task.elapsed)
        return Text("" if seconds is None else f"{timedelta(seconds=round(seconds))} left", style="progress.remaining")


def seconds_left(done: float, total: float | None, elapsed: float | None) -> float | None:
    """Return the estimated seconds until all parts are done; None if no part is done or all are."""
    if not done or total is None or elapsed is None or done >= total:
        return None
    return elapsed / done * (total - done)


@contextmanager
def progress_bar(*, enabled: bool = True) -> Iterator[Report]:
    """Yield a function that shows (stage, done, total) on a progress bar, or does nothing without a terminal."""
    console = Terminal(stderr=True)
    if not (enabled and console.file.isatty()):
        yield silent
        return
    columns = (TextColumn("{task.description:8}", markup=False), BarColumn(), _Count(), TimeElapsedColumn(), _Left())
    # What is printed meanwhile does not pass rich, which would read escape sequences in it.
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bar:
        yield Bars(bar)


class Bars:
    """Shows progress on bars, one for each stage."""

    needs_no_session = True  # may be called while a statement runs: it uses no session

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._tasks: dict[str, TaskID] = {}
        self._since = shown.get_time()  # the last call: a stage whose first call has a part done began then

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how much of a stage is done."""
        parts = None if (done, total) == (0, 1) else total  # rich shows a bar that moves to and fro
        if stage not in self._tasks:
            self._tasks[stage] = self._shown.add_task(stage, total=parts)
            self._shown.tasks[-1].start_time = self._since if done else self._shown.get_time()
        elif done < self._shown.tasks[self._tasks[stage]].completed:  # once more
            self._shown.reset(self._tasks[stage])
        self._shown.update(self._tasks[stage], completed=done, total=parts)
        self._since = self._shown.get_time()
