#!/bin/sh
# Times the steps of a make target and prints them as a table.
#
#   scripts/timed.sh --start           clears the steps of the last run
#   scripts/timed.sh NAME COMMAND...   runs the command as a step; exits with its exit code
#   scripts/timed.sh --table           prints the steps since --start
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
steps=$target/steps
mkdir -p "$target"

case "${1:-}" in
    --start)
        : > "$steps"
        exit 0
        ;;
    --table)
        echo
        echo "Time of each step:"
        cat "$steps"
        awk '{ sum += $(NF - 1) } END { printf "  %-28s %5d s\n", "total", sum }' "$steps"
        exit 0
        ;;
esac
if [ $# -lt 2 ]; then
    echo "usage: $0 --start | NAME COMMAND... | --table" >&2
    exit 2
fi
name=$1
shift
begin=$(date +%s)
code=0
"$@" || code=$?
seconds=$(($(date +%s) - begin))
printf '  %-28s %5d s\n' "$name" "$seconds" | tee -a "$steps"
if [ "$code" -ne 0 ]; then
    echo "$name failed" >&2
fi
exit "$code"
