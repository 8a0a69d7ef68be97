#!/usr/bin/env python3
"""Writes the bill of materials of the static sumlink, as CycloneDX in JSON.

    scripts/sbom.py --target TARGET OUT

cargo-cyclonedx lists the crates of the whole workspace, with build scripts and tests. Of them, the
result has those that are linked into the program. The same sources and SOURCE_DATE_EPOCH (default: the
last commit's time) give the same bytes.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

from notices import linked

PARTS = ("Cargo.toml", "Cargo.lock", "crates", "fuzz", "ns3", "python")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def listed(target):
    """The bill of materials that cargo-cyclonedx writes for the program."""
    tool = output("scripts/tool.sh", "cargo-cyclonedx").decode().strip()
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct").decode().strip()
    # It writes beside each Cargo.toml of the workspace, so that it works on a copy.
    with tempfile.TemporaryDirectory() as copy:
        files = output("git", "ls-files", "-z", "--", *PARTS)
        subprocess.run(["xargs", "-0", "cp", "--parents", "--target-directory", copy], check=True, input=files)
        subprocess.run(
            [tool, "cyclonedx", "--quiet", "--manifest-path", f"{copy}/crates/cli/Cargo.toml", "--format", "json",
             "--spec-version", "1.5", "--no-default-features", "--features", "postgres", "--no-build-deps",
             "--target", target, "--override-filename", "sbom"],
            check=True, env=os.environ | {"SOURCE_DATE_EPOCH": epoch})
        text = pathlib.Path(copy, "crates/cli/sbom.json").read_text()
        # The names of the project's own components contain their place.
        return json.loads(text.replace(f"path+file://{copy}", "path+file:///sumlink"))


def reduce(bill, crates):
    """Removes the components that are not linked, and the dependencies on them."""
    bill["components"] = [part for part in bill["components"] if (part["name"], part["version"]) in crates]
    kept = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    bill["dependencies"] = [
        entry | ({"dependsOn": [name for name in entry["dependsOn"] if name in kept]} if "dependsOn" in entry else {})
        for entry in bill["dependencies"] if entry["ref"] in kept
    ]
    return bill


def main():
    parser = argparse.ArgumentParser(prog="sbom.py", description="Writes the bill of materials of the static sumlink.")
    parser.add_argument("--target", required=True, help="Rust target of the program")
    parser.add_argument("out", type=pathlib.Path, help="the file to write")
    args = parser.parse_args()
    args.out = args.out.absolute()
    os.chdir(pathlib.Path(__file__).parent.parent)
    crates = set(linked(args.target, own=True))
    bill = reduce(listed(args.target), crates)
    found = {(part["name"], part["version"]) for part in bill["components"]}
    missing = {crate for crate in crates - found if crate[0] != "sumlink"}
    if missing:
        parser.exit(1, f"sbom.py: cargo-cyclonedx does not list {sorted(missing)}\n")
    args.out.write_text(json.dumps(bill, indent=2) + "\n")


if __name__ == "__main__":
    main()
