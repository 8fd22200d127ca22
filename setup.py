"""Builds the compiled modules; without a C compiler, one sentence names what to install.

With DBDP_LIMITED_API=1, which `make wheels` sets, they use Python's stable interface, so that one wheel serves CPython
3.11 and later. Otherwise they are only for this version of Python, and scorers of several classes are 10 % faster.
"""

import os
import shlex
import subprocess
import sysconfig

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import editable_wheel

MISSING = (
    "dbdp needs a C compiler and Python.h: install gcc, libc6-dev and python3-dev (Debian, Ubuntu), or gcc and "
    "python3-devel (Fedora), then try again"
)


IS_LIMITED = os.environ.get("DBDP_LIMITED_API") == "1"
LIMITED = {"bdist_wheel": {"py_limited_api": "cp311"}}


def has_compiler() -> bool:
    """Return whether the C compiler finds Python.h, and the C library's headers that it includes."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, "-E", f"-I{sysconfig.get_path('include')}", f"-I{sysconfig.get_path('platinclude')}", "-"]
    try:
        return subprocess.run(command, input=b"#include <Python.h>", capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class BuildExtensions(build_ext):
    """Builds the compiled modules if there is a compiler."""

    def run(self) -> None:
        """Build, or exit with the sentence."""
        if not has_compiler():
            raise SystemExit(MISSING)
        for extension in self.extensions if IS_LIMITED else ():
            extension.py_limited_api = True
            extension.define_macros.append(("Py_LIMITED_API", "0x030b0000"))
        super().run()


class EditableWheel(editable_wheel):
    """Puts the clone on Python's path: by a finder of setuptools, a folder `dbdp` where you are would come first."""

    def finalize_options(self) -> None:
        """Leave out the packages that are folders beside dbdp, which finds them there."""
        elsewhere = self.distribution.package_dir or {}
        self.distribution.packages = [each for each in self.distribution.packages if each not in elsewhere]
        self.distribution.package_dir = {"": "."}
        super().finalize_options()


setup(cmdclass={"build_ext": BuildExtensions, "editable_wheel": EditableWheel}, options=LIMITED if IS_LIMITED else {})
