"""Prints the image's bill of materials as CycloneDX: its Debian packages, and the Python packages of a folder."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

DEBIAN = Path("/usr/share/dbdp/debian-packages.tsv")


def debian_packages() -> Iterator[PackageURL]:
    """Yield each Debian package of the image's first stage, before any compiler."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    for line in DEBIAN.read_text().splitlines():
        name, version, architecture = line.split("\t")
        yield PackageURL("deb", "debian", name, version, {"arch": architecture, "distro": suite})


def python_packages(folder: str) -> Iterator[PackageURL]:
    """Yield each package that pip installed into a folder."""
    for package in distributions(path=[folder]):
        yield PackageURL("pypi", None, package.name.lower(), package.version)


if __name__ == "__main__":
    every = [*debian_packages(), *python_packages(sys.argv[1])]
    components = [Component(name=each.name, version=each.version, purl=each, bom_ref=str(each)) for each in every]
    print(JsonV1Dot6(Bom(components=components)).output_as_string(indent=1))
