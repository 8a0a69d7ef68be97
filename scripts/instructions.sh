#!/bin/sh
# Counts the instructions of the engine's hot paths with callgrind and prints their change against those of
# crates/engine/benches/instructions.txt, and against those that this file had before it was last written: who changes
# the engine writes its counts in the same landing. With --update it writes them there. Never fails for a change:
# another compiler or processor gives other counts, so the figures are for people.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
known=crates/engine/benches/instructions.txt
# The runner must have the library's version.
version=$(sed -n '/^name = "gungraun"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)
tools=$(mkdir -p "$target/tools" && cd "$target/tools" && pwd)
export GUNGRAUN_RUNNER="$tools/bin/gungraun-runner"
if [ "$("$GUNGRAUN_RUNNER" --version 2> /dev/null)" != "gungraun-runner $version" ]; then
	cargo install gungraun-runner --version "$version" --locked --quiet --root "$tools"
fi
counted=$(mktemp)
before=$(mktemp)
trap 'rm -f "$counted" "$before"' EXIT
cargo bench --locked --quiet -p sumlink-engine --bench instructions -- --output-format=json |
	jq -r 'select(.profiles) | "\(.function_name).\(.id // "1") \(.profiles[0].data.parts[0].metrics.Ir.values.new)"' > "$counted"
[ -s "$counted" ] || { echo "instructions: nothing was counted" >&2; exit 1; }
# Nothing where there is no history, such as in a copy without git.
last=$(git log -1 --format=%H -- "$known" 2> /dev/null || true)
if [ -n "$last" ]; then
	git show "$last^:$known" > "$before" 2> /dev/null || true
fi
awk 'function change(of) { return of ? sprintf("%+.2f %%", ($2 / of - 1) * 100) : "new" }
	FILENAME == ARGV[1] { before[$1] = $2; next }
	FILENAME == ARGV[2] { known[$1] = $2; next }
	FNR == 1 { printf "  %-28s %12s %22s %22s\n", "", "instructions", "against the file", "against the one before" }
	{ printf "  %-28s %12d %22s %22s\n", $1, $2, change(known[$1]), change(before[$1]) }' "$before" "$known" "$counted"
if [ "${1:-}" = --update ]; then
	cp "$counted" "$known"
fi
