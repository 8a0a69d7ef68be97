#!/bin/sh
# Counts the instructions of the engine's hot paths with callgrind and prints their change against those of
# crates/engine/benches/instructions.txt; with --update it writes them there. Never fails for a change: another
# compiler or processor gives other counts, so the figures are for people.
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
trap 'rm -f "$counted"' EXIT
cargo bench --locked --quiet -p sumlink-engine --bench instructions -- --output-format=json |
	jq -r 'select(.profiles) | "\(.function_name).\(.id // "1") \(.profiles[0].data.parts[0].metrics.Ir.values.new)"' > "$counted"
[ -s "$counted" ] || { echo "instructions: nothing was counted" >&2; exit 1; }
if [ "${1:-}" = --update ]; then
	cp "$counted" "$known"
fi
awk 'NR == FNR { before[$1] = $2; next }
	{ change = before[$1] ? sprintf("%+.2f %%", ($2 / before[$1] - 1) * 100) : "new"
	  printf "  %-28s %12d instructions %10s\n", $1, $2, change }' "$known" "$counted"
