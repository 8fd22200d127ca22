"""Reports the versions of what runs in this interpreter."""

import platform
from typing import Any

from dbdp import __version__


def about() -> dict[str, Any]:
    """Return versions by name."""
    import flint
    import numpy as np

    return {
        "dbdp": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "flint": flint.__version__,
    }
