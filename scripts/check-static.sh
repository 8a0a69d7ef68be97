#!/bin/sh
# Checks that a sumlink is static, that it starts, and that `cc` says what this build lacks.
#
#   scripts/check-static.sh PROGRAM
#
# STATIC_RUNNER runs a program for another processor, for example qemu-aarch64-static.
set -eu
program=$(realpath "$1")
run() { ${STATIC_RUNNER:-} "$program" "$@"; }
if readelf --program-headers --wide "$program" | grep -q INTERP; then
	echo "$program needs a dynamic loader: it is not static" >&2
	exit 1
fi
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
version=$(run --version)
run keygen --out "$place/a.key" > /dev/null
run links > /dev/null
run cc list | grep -q 'this build of sumlink has no congestion controls for the kernel' || {
	echo "$program: cc list does not say that the kernel part is missing" >&2
	exit 1
}
code=0
run cc load lia 2> "$place/error" || code=$?
if [ "$code" -ne 11 ] || ! grep -q 'cargo feature `kernel`' "$place/error"; then
	echo "$program cc load lia: exit code $code, $(cat "$place/error")" >&2
	exit 1
fi
echo "$version, static, $(stat --format=%s "$program") bytes"
