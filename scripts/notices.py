#!/usr/bin/env python3
"""Prints the license texts of the libraries in the static sumlink.

    scripts/notices.py --target TARGET

They are those of the crates that Cargo links for the target, without build scripts and procedural
macros, in order of their names.
"""

import argparse
import json
import pathlib
import subprocess
import sys

PATTERNS = ("LICEN[CS]E*", "licen[cs]e*", "COPYING*", "COPYRIGHT*", "NOTICE*")


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target, own=False):
    """Name and version of each crate in the program, in order; with `own`, the project's crates as well."""
    listed = cargo("tree", "--locked", "--package", "sumlink", "--no-default-features", "--features", "postgres",
                   "--target", target, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    crates = set()
    for line in listed.splitlines():
        # "name v1.2.3", followed by the folder of the project's own crates or by "(*)".
        name, version, *rest = line.split()
        if own or not any(word.startswith("(/") for word in rest):
            crates.add((name, version.removeprefix("v")))
    return sorted(crates)


def main():
    parser = argparse.ArgumentParser(prog="notices.py", description="Prints the licenses of linked libraries.")
    parser.add_argument("--target", required=True, help="Rust target of the program")
    args = parser.parse_args()
    metadata = cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", args.target)
    known = {(package["name"], package["version"]): package for package in json.loads(metadata)["packages"]}
    print("The program sumlink contains the following libraries, and Rust's standard library and musl,\n"
          "which are under Apache-2.0 or MIT, and MIT.")
    missing = []
    for name, version in linked(args.target):
        package = known[name, version]
        folder = pathlib.Path(package["manifest_path"]).parent
        texts = sorted({file for pattern in PATTERNS for file in folder.glob(pattern) if file.is_file()})
        print(f"\n{'=' * 80}\n{name} {version}: {package['license']}\n{'=' * 80}")
        for file in texts:
            print(f"\n{file.read_text(errors='replace').strip()}")
        if not texts:
            missing.append(name)
            authors = ", ".join(package["authors"]) or "not named"
            print(f"\nThe library has no license text of its own. Authors: {authors}")
    if missing:
        print(f"notices.py: without a license text: {', '.join(missing)}", file=sys.stderr)


if __name__ == "__main__":
    main()
