#!/bin/sh
# Counts the instructions of the engine's hot paths with callgrind. Prints the change against
# crates/engine/benches/instructions.txt, and against that file at the previous landing. The
# previous landing is the commit in SUMLINK_PREVIOUS, otherwise the upstream branch, otherwise the
# commit before the file last changed. A change to the engine updates the counts in the same
# landing, with --update. A change of the counts is never a failure: they depend on the compiler and
# the processor, and are for human readers.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
known=crates/engine/benches/instructions.txt
previous=${SUMLINK_PREVIOUS:-}
if [ -z "$previous" ]; then
	head=$(git rev-parse HEAD 2> /dev/null || true)
	previous=$(git merge-base HEAD '@{upstream}' 2> /dev/null || true)
	if [ -z "$previous" ] || [ "$previous" = "$head" ]; then
		last=$(git log -1 --format=%H -- "$known" 2> /dev/null || true)
		previous=${last:+$last^}
	fi
fi
previous=$(git rev-parse --short --verify --quiet "$previous^{commit}" 2> /dev/null || true)
if [ -z "$previous" ] && [ -n "${SUMLINK_PREVIOUS:-}" ]; then
	echo "instructions: SUMLINK_PREVIOUS is not a commit of this repository: $SUMLINK_PREVIOUS" >&2
	exit 2
fi
# The runner must match the library's version.
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
[ -s "$counted" ] || { echo "instructions: no counts produced" >&2; exit 1; }
# Empty without a history, such as in a copy without git.
[ -z "$previous" ] || git show "$previous:$known" > "$before" 2> /dev/null || true
awk -v previous="against ${previous:-the previous landing}" 'function change(of) { return of ? sprintf("%+.2f %%", ($2 / of - 1) * 100) : "new" }
	FILENAME == ARGV[1] { before[$1] = $2; next }
	FILENAME == ARGV[2] { known[$1] = $2; next }
	FNR == 1 { printf "  %-28s %12s %22s %22s\n", "", "instructions", "against the file", previous }
	{ printf "  %-28s %12d %22s %22s\n", $1, $2, change(known[$1]), change(before[$1]) }' "$before" "$known" "$counted"
if [ "${1:-}" = --update ]; then
	cp "$counted" "$known"
fi
