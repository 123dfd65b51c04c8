"""Every example of the page and of the docstrings runs as it is written."""

from __future__ import annotations

import ast
import doctest
import importlib
import pathlib
import re
import subprocess
import sys

import leasehold_lock
import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


WITH_EXAMPLES = ["leasehold_lock", "leasehold_lock._base", "leasehold_lock._file", "leasehold_lock.fence"]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_page_runs(number, server, tmp_path):
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[number].replace("redis://db1/", server.url))
    command = [sys.executable, "-X", "dev", "-W", "error"]
    if "def test_" in EXAMPLES[number]:
        command += ["-m", "pytest", "-p", "no:cacheprovider", "-p", "leasehold_lock.testing"]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done


def test_the_page_has_its_examples():
    assert len(EXAMPLES) == 8
    assert "redis://db1/" in EXAMPLES[0]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_of_docstrings_run(module):
    module = importlib.import_module(module)
    failed, tried = doctest.testmod(module, extraglobs={"lh": leasehold_lock})
    assert tried and not failed


def waiting_calls(file):
    """The calls that wait, with their arguments: coroutines of the base, and what threads see."""
    tree = ast.parse((pathlib.Path(leasehold_lock.__file__).parent / file).read_text())
    for of in (it for it in tree.body if isinstance(it, ast.ClassDef)):
        for call in (it for it in of.body if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef))):
            waits = isinstance(call, ast.AsyncFunctionDef) or file.endswith("i")
            if waits and not call.decorator_list and call.name not in ("_claim", "_run"):
                name = call.name.replace("__a", "__")
                yield of.name.replace("Base", ""), name, ast.unparse(call.args)


def test_the_types_for_threads_are_those_of_the_base():
    assert sorted(waiting_calls("_threads.pyi")) == sorted(waiting_calls("_base.py"))
