"""Packages that ``scripts/test`` gets for tests, each for processes of their own."""

from __future__ import annotations

import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
SERVERS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "servers"


def with_packages(*names: str, **more: str | os.PathLike[str]) -> dict[str, str]:
    """The environment of a process that imports them. Not of this one: some bring plugins."""
    for name in names:
        if not (SERVERS / name).is_dir():
            pytest.fail(f"there is no {name} in {SERVERS}: run scripts/test --install")
        version = (SERVERS / f"{name}.from").read_text().split()[-1]
        if re.fullmatch(r"3\.\d+", version) and version != "%d.%d" % sys.version_info[:2]:
            pytest.skip(f"the packages in {name} are those of Python {version}")
    path = os.pathsep.join(str(SERVERS / name) for name in names)
    return {**os.environ, "PYTHONPATH": path, **{name: str(value) for name, value in more.items()}}
