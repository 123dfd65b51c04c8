#!/usr/bin/env python3
"""Prints the bill of materials of the command, in CycloneDX 1.5.

    dist/bill.py TARGET

The time is SOURCE_DATE_EPOCH, so that the same dependencies give the same bill.
"""

import datetime
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True

import dependencies


def main():
    root, *others = dependencies.packages(sys.argv[1])
    made = datetime.datetime.fromtimestamp(
        int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc
    )
    rustc = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(root, "application"),
            "properties": [
                {"name": "leasehold:target", "value": sys.argv[1]},
                {"name": "leasehold:compiler", "value": rustc.strip()},
            ],
        },
        "components": [component(package, "library") for package in others],
        "dependencies": [
            {"ref": purl(package.name, package.version),
             "dependsOn": [purl(*key) for key in package.needs]}
            for package in [root, *others]
        ],
    }, sys.stdout, indent=1)
    print()


def component(package, kind):
    found = {
        "type": kind,
        "bom-ref": purl(package.name, package.version),
        "name": package.name,
        "version": package.version,
        # Some write "/" for "OR", as was usual once.
        "licenses": [{"expression": package.licence.replace("/", " OR ")}],
        "purl": purl(package.name, package.version),
    }
    if package.description:
        found["description"] = " ".join(package.description.split())
    if package.checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": package.checksum}]
    return found


def purl(name, version):
    return f"pkg:cargo/{name}@{version}"


main()
