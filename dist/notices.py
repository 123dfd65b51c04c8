#!/usr/bin/env python3
"""Prints the licences of all that is compiled into the command.

    dist/notices.py TARGET

Takes them from the sources of the dependencies that `cargo tree` names. Texts that are the same
are printed once.
"""

import json
import pathlib
import re
import subprocess
import sys

# How files with licences and notices are named.
NAMES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def dependencies(target):
    """Those that the command is linked with: name, version, licence, directory."""
    tree = cargo("tree", "--locked", "-p", "leasehold-cli", "-e", "normal,no-proc-macro",
                 "--target", target, "--prefix", "none", "--format", "{p}")
    named = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1"))["packages"]
    found = [
        (it["name"], it["version"], it["license"], pathlib.Path(it["manifest_path"]).parent)
        for it in packages
        if (it["name"], "v" + it["version"]) in named and it["source"]
    ]
    return sorted(found)


def main():
    texts = {}
    for name, version, licence, directory in dependencies(sys.argv[1]):
        print(f"{name} {version}: {licence}")
        for file in sorted(directory.iterdir()):
            if file.is_file() and NAMES.fullmatch(file.name):
                text = file.read_text(encoding="utf-8", errors="replace").strip()
                texts.setdefault(text, []).append(f"{name} {version}")
    for text, names in texts.items():
        print("\n" + "=" * 80 + "\n" + ", ".join(names) + "\n" + "-" * 80 + "\n" + text)


main()
