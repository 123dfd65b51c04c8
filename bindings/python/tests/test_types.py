"""mypy and pyright accept the package, its examples and those of the pages; what pages say of pip."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import leasehold_lock
import pytest
from packages import ROOT, SERVERS, with_packages
from test_page import WITH_EXAMPLES

PACKAGE = pathlib.Path(leasehold_lock.__file__).parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PROGRAMS = [*(ROOT / "examples").glob("*/*.py")]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


WITH_TYPES = "mypy", "python-recipes", "psycopg-django", "pytest"


def checked(module, *arguments):
    packages = "basedpyright", *WITH_TYPES
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = with_packages(*packages, MYPYPATH="", PYTHONWARNINGS="")
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def squeezed(text):
    """Without indentation and empty lines."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def blocks():
    """A file for each example of pages and docstrings, but for those that quote a program."""
    whole = [squeezed(program.read_text()) for program in PROGRAMS]
    for page in PAGES:
        for number, text in enumerate(BLOCK.findall(page.read_text())):
            if not any(squeezed(text) in program for program in whole):
                yield f"{page.stem}_{number}", text
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in WITH_EXAMPLES:
        for number, found in enumerate(finder.find(importlib.import_module(name))):
            text = "".join(example.source for example in found.examples)
            if text:
                yield f"{name.replace('.', '_')}_{number}", f"import leasehold_lock as lh\n{text}"


@pytest.fixture
def examples(tmp_path):
    """A directory of all examples."""
    programs = [(f"{it.parent.name}_{it.stem}", it.read_text()) for it in PROGRAMS]
    examples = dict([*programs, *blocks()])
    assert len(programs) >= 11 and len(examples) >= len(programs) + 8 + len(WITH_EXAMPLES)
    for name, text in examples.items():
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(text)
    return tmp_path


def test_mypy_accepts_the_package_and_each_example(examples):
    options = ["--strict", f"--config-file={os.devnull}", f"--cache-dir={examples / 'cache'}"]
    done = checked("mypy", *options, PACKAGE, *examples.glob("*.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_accepts_the_package_and_each_example(examples):
    config = {
        "include": [str(PACKAGE), str(examples)],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.10",
        # What is made there by decorators has its types in `_threads.pyi`.
        "exclude": [str(PACKAGE / "_threads.py")],
        "extraPaths": [str(it) for it in (PACKAGE.parent, *(SERVERS / name for name in WITH_TYPES))],
    }
    (examples / "pyrightconfig.json").write_text(json.dumps(config))
    done = checked("basedpyright", "--project", examples)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_types_are_those_of_the_module(tmp_path):
    allowed = pathlib.Path(__file__).with_name("stubtest.txt")
    # The types of pytest are none of ours, and take long to read.
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-pytest.*,_pytest.*]\nfollow_imports = skip\n")
    options = ["--allowlist", allowed, "--mypy-config-file", config]
    done = checked("mypy.stubtest", "leasehold_lock", *options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [it for it in PAGES if "pip install" in it.read_text()])
def test_each_page_that_installs_it_tells_it_from_the_other(page):
    text = " ".join(page.read_text().split())
    assert "leasehold-lock" in text
    assert re.search(r"`leasehold` on PyPI is( a package of)? somebody else", text)


def test_pages_that_install_it_are_found():
    found = {it.name for it in PAGES if "pip install" in it.read_text()}
    assert {"README.md", "python.md"} <= found
