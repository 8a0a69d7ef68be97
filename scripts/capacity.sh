#!/bin/sh
# Measures what idle clients cost a server: programs `sumlink client`, each with two links, in one
# network namespace, and a server in another. Requires root.
#
#   scripts/capacity.sh SUMLINK NUMBER [SECONDS [SETTLING]]
#
# SUMLINK is the program. Prints one line. The server returns freed memory to the kernel up to three
# minutes after the clients have connected (SETTLING, default 190 s).
# crates/transport/examples/sessions.rs measures more clients, and clients that transfer.
set -eu
program=$1 number=$2 seconds=${3:-60} settling=${4:-190}
server=capacity-server-$$ clients=capacity-clients-$$
place=$(mktemp -d)
pids=
end() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    wait
    ip netns delete "$server" 2>/dev/null || true
    ip netns delete "$clients" 2>/dev/null || true
    rm -r "$place"
}
trap end EXIT
trap 'exit 130' INT TERM
ip netns add "$server"
ip netns add "$clients"
ip -n "$server" link set lo up
ip -n "$clients" link set lo up
ip -n "$server" address add 203.0.113.1/32 dev lo
for one in 1 2; do
    ip -n "$clients" link add "link$one" type veth peer name "link$one" netns "$server"
    ip -n "$clients" address add "192.0.$one.2/24" dev "link$one"
    ip -n "$server" address add "192.0.$one.1/24" dev "link$one"
    ip -n "$clients" link set "link$one" up
    ip -n "$server" link set "link$one" up
    ip -n "$clients" route add default via "192.0.$one.1" dev "link$one" metric "$one"
done

# Makes a key and prints the public one.
make_key() {
    "$program" keygen --quiet --out "$1" >/dev/null 2>&1
    "$program" pubkey "$1"
}
key=$(make_key "$place/server.key")
set -- server --quiet --listen 203.0.113.1:7443 --key "$place/server.key" --control "$place/control"
for one in $(seq "$number"); do
    set -- "$@" --authorize "$(make_key "$place/$one.key")"
done
ip netns exec "$server" "$program" "$@" &
of_server=$!
pids=$of_server
until [ -S "$place/control" ]; do sleep 0.1; done

# Of the server: resident kB, processor time in hundredths of a second, times that a thread waited.
cost() {
    resident=$(awk '/^VmRSS/ { print $2 }' "/proc/$of_server/status")
    ticks=$(sed 's/.*) //' "/proc/$of_server/stat" | awk '{ print $12 + $13 }')
    waits=$(cat /proc/"$of_server"/task/*/status | awk '/^voluntary_ctxt/ { sum += $2 } END { print sum }')
}
cost
empty=$resident begun=$ticks
for one in $(seq "$number"); do
    ip netns exec "$clients" "$program" client --quiet --server 203.0.113.1:7443 --server-key "$key" \
        --key "$place/$one.key" --socks "127.0.0.1:$((20000 + one))" &
    pids="$pids $!"
    # The server lets 32 connections of an address wait for their key.
    sleep 0.2
done
paths() { "$program" status --json --control "$place/control" | grep -o '"state": *"active"' | wc -l; }
until [ "$(paths)" -ge $((2 * number)) ]; do sleep 1; done
cost
connected=$ticks
sleep "$settling"
cost
first=$ticks before=$waits
sleep "$seconds"
cost
awk -v number="$number" -v seconds="$seconds" -v memory=$((resident - empty)) -v all="$resident" \
    -v waits=$((waits - before)) -v busy=$((ticks - first)) -v connecting=$((connected - begun)) 'BEGIN {
    printf "%d clients: %.1f MB resident (%.1f kB each), %.3f wake-ups a second each, %.2f %% of a ",
        number, all * 1.024e-3, memory * 1.024 / number, waits / seconds / number, busy / seconds
    printf "processor, %.1f ms of processor time for each to connect\n", connecting * 10 / number
}'
