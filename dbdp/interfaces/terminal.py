"""The console on which tables and progress bars are drawn: rich's, which writes no control character of a text."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dbdp.interfaces.plain import plain_lines


class Terminal(Console):
    """A console on which texts have no markup, and their control characters are escaped."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False} | settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of what is printed; those that move the cursor, which have no text, as they are."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain_lines(segment.text))
