"""Run the command line, in a process of its own or in this one."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dbdp.interfaces.cli.main import main


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `dbdp` with these arguments, and with these variables added to the environment."""
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def run_here(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the same `main` in this process, which has imported all it needs: a second less."""
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["dbdp", *arguments]),
        patch.dict(os.environ, environment),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def features_file(folder: Path, features: dict[str, Any]) -> str:
    """Write the features of a declaration to a file; return its name."""
    path = folder / "features.json"
    path.write_text(json.dumps(features))
    return str(path)
