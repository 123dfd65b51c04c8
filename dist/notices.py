#!/usr/bin/env python3
"""Prints the licences of all that is compiled into the command.

    dist/notices.py TARGET

Takes them from the sources of the dependencies. Texts that are the same are printed once.
"""

import re
import sys

sys.dont_write_bytecode = True

import dependencies

# How files with licences and notices are named.
NAMES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)


def main():
    texts = {}
    for package in dependencies.packages(sys.argv[1]):
        # Our own licence is beside this file.
        if package.checksum is None:
            continue
        print(f"{package.name} {package.version}: {package.licence}")
        for file in sorted(package.directory.iterdir()):
            if file.is_file() and NAMES.fullmatch(file.name):
                text = file.read_text(encoding="utf-8", errors="replace").strip()
                texts.setdefault(text, []).append(f"{package.name} {package.version}")
    for text, names in texts.items():
        print("\n" + "=" * 80 + "\n" + ", ".join(names) + "\n" + "-" * 80 + "\n" + text)


main()
