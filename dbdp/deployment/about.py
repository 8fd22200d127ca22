"""Reports what runs in this interpreter: versions, and which of dbdp's compiled modules can be loaded."""

import platform
from importlib import import_module
from typing import Any

from dbdp import __version__

COMPILED = {
    "training": "dbdp.learning.compiled._kernel",
    "noise": "dbdp.privacy.noise._stream",
    "prediction": "dbdp.interfaces.sql._scorer",
}


def about() -> dict[str, Any]:
    """Return versions by name, and for each task whether compiled code does it; else the same code in Python does."""
    import flint
    import numpy as np

    return {
        "dbdp": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "flint": flint.__version__,
        "compiled": {work: _loads(module) for work, module in COMPILED.items()},
    }


def _loads(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
