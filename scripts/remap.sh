#!/bin/sh
# Prints the flags of rustc that replace this machine's folders in panic messages, so that builds in
# different places give the same bytes. Cargo must have fetched the sources.
set -eu
cd "$(dirname "$0")/.."
home=${CARGO_HOME:-$HOME/.cargo}
# The folder's name depends on the registry's address.
for sources in "$home"/registry/src/*/; do
    printf '%s ' "--remap-path-prefix=${sources%/}=/cargo"
done
printf '%s\n' "--remap-path-prefix=$PWD=/sumlink"
