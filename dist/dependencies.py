"""What the command is compiled from, as `cargo tree` says it for one target.

`cargo metadata` alone would say too much: it takes the features that all crates of the workspace and
their tests ask for.
"""

import json
import pathlib
import subprocess
import tomllib
from collections import namedtuple

# `needs` are the names and versions of those that it is compiled with; a crate of this repository
# has no checksum.
Package = namedtuple("Package", "name version licence description directory checksum needs")


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def packages(target):
    """The command first, then the others by name."""
    needs = edges(target)
    listed = json.loads(cargo("metadata", "--locked", "--format-version", "1"))["packages"]
    with open("Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in locked}
    by_key = {(it["name"], it["version"]): it for it in listed}
    root, *others = needs
    return [
        Package(*key, it["license"], it["description"], pathlib.Path(it["manifest_path"]).parent,
                checksums[key], sorted(needs[key]))
        for key in [root, *sorted(others)]
        for it in [by_key[key]]
    ]


def edges(target):
    """By name and version, what each needs. Lines are a depth, a name and a version."""
    tree = cargo("tree", "--locked", "-p", "leasehold-cli", "-e", "normal,no-proc-macro",
                 "--target", target, "--prefix", "depth", "--format", " {p}")
    needs, above = {}, []
    for line in filter(None, tree.splitlines()):
        depth, name, version = line.split()[:3]
        key = (name, version.removeprefix("v"))
        del above[int(depth):]
        needs.setdefault(key, set())
        if above:
            needs[above[-1]].add(key)
        above.append(key)
    return needs
