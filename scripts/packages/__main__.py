"""Tests the packages of `make dist`.

    scripts/packages [--quick] [--only FORMAT] --target TARGET PROGRAM

Packs PROGRAM twice and compares the bytes, checks the contents of each package, of the archive, the
image and the bill of materials, then installs, starts, upgrades and removes each package in a minimal
Debian in namespaces of its own, and runs the image (root). With --quick, only the contents of the files
of scripts/dist.sh are checked.

Exit codes: 0 success, 1 a test failed, 2 wrong command line.
"""

import argparse
import filecmp
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import contents
import container
import formats
import lifecycle
from root import Root, base

OLD, NEW = "0.0.1", "0.0.2"


def pack(program, target, folder, version, config=None):
    """Runs scripts/dist.sh, with the time of the program for all files."""
    env = os.environ | {"PACKAGE_VERSION": version, "SOURCE_DATE_EPOCH": str(int(program.stat().st_mtime))}
    if config:
        env["PACKAGE_CONFIG"] = str(config)
    done = subprocess.run(["scripts/dist.sh", program, target, folder], env=env, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"scripts/dist.sh failed:\n{done.stderr}")


def reproducible(first, second):
    names = sorted(file.name for file in first.iterdir())
    lifecycle.check(names == sorted(file.name for file in second.iterdir()), "the two builds have different files")
    different = [name for name in names if not filecmp.cmp(first / name, second / name, shallow=False)]
    lifecycle.check(not different, f"two builds differ in {different}")


def materials(target, folder):
    """The bill of materials: the same bytes twice, and the crates of this build only."""
    for name in ("first.json", "second.json"):
        subprocess.run(["scripts/sbom.py", "--target", target, folder / name], check=True)
    lifecycle.check(filecmp.cmp(folder / "first.json", folder / "second.json", shallow=False), "two bills differ")
    text = (folder / "first.json").read_text()
    bill = json.loads(text)
    lifecycle.check(bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "sumlink", "format")
    names = {part["name"] for part in bill["components"]}
    lifecycle.check({"ring", "rustls", "tokio", "sumlink-engine"} <= names, f"crates are missing: {names}")
    lifecycle.check(not names & {"libbpf-sys", "proptest", "clap_derive"}, "crates that are not in the program")
    lifecycle.check(os.getcwd() not in text and "/tmp/" not in text, "it names places of this machine")


def live(name, old, new, lower):
    """Installs, starts, upgrades and removes the packages of one format."""
    with Root(lower) as root:
        system = formats.choose()[name](root)
        files = [(next(folder.glob(system.glob)), version) for folder, version in ((old, OLD), (new, NEW))]
        skipped = lifecycle.lifecycle(system, *files, root.files())
        return f"{system.how}" + (f"; not tested: {', '.join(skipped)}" if skipped else "")


def main():
    parser = argparse.ArgumentParser(prog="packages", description="Tests the packages of `make dist`.")
    parser.add_argument("--quick", action="store_true", help="check only the contents")
    parser.add_argument("--only", choices=("deb", "rpm", "apk", "ipk"), help="install only this format")
    parser.add_argument("--target", required=True, help="Rust target of the program")
    parser.add_argument("program", type=pathlib.Path, help="the static sumlink")
    args = parser.parse_args()
    if not args.program.exists():
        parser.error(f"{args.program} does not exist")
    if not args.quick and os.geteuid() != 0:
        parser.error("installing packages in namespaces needs root; --quick does not")

    with tempfile.TemporaryDirectory(prefix="sumlink-dist-") as place:
        place = pathlib.Path(place)
        old, new, again, config = (place / name for name in ("old", "new", "again", "config"))
        pack(args.program, args.target, new, NEW)
        tests = [(f"contents: {test.__name__}", test, (new, args.program)) for test in contents.TESTS]
        if not args.quick:
            # A version with other examples, so that an upgrade could overwrite those in use.
            config.mkdir()
            for name in ("client.toml", "server.toml"):
                text = pathlib.Path("packaging", name).read_text()
                (config / name).write_text(f"# An older example.\n{text}")
            pack(args.program, args.target, old, OLD, config)
            pack(args.program, args.target, again, NEW)
            tests.append(("packed twice: the same bytes", reproducible, (new, again)))
            tests.append(("bill of materials", materials, (args.target, place)))
            lower = base(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")).resolve() / "packages")
            tests += [(f"installed, started, upgraded, removed: {name}", live, (name, old, new, lower))
                      for name in formats.choose() if args.only in (None, name)]
            if args.only is None:
                tests.append(("the image runs as a gateway", container.container, (new, place)))
        failed = 0
        for name, test, arguments in tests:
            began = time.monotonic()
            try:
                note = test(*arguments)
            except Exception:
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
            else:
                print(f"ok {name}, {time.monotonic() - began:.0f} s" + (f" ({note})" if note else ""), flush=True)
        print(f"{len(tests) - failed} passed, {failed} failed")
        return 1 if failed else 0


if __name__ == "__main__":
    os.chdir(pathlib.Path(__file__).parent.parent.parent)
    sys.exit(main())
