#!/bin/sh
# Measures the capacity of an edge node on one core, with neither sender nor receiver as the
# bottleneck. The node runs on core 0; core 1 runs a program that is both ends
# (crates/edge-node/examples/replay.rs). Requires root, two cores, and an otherwise idle machine.
#
#   scripts/edge-capacity.sh PROGRAM REPLAY MODE STEERING FLOWS [SECONDS [SEGMENTS]]
#
# PROGRAM is sumlink-edge, REPLAY the example (cargo build --release -p sumlink-edge-node --example
# replay). Prints a JSON line.
set -eu
program=$1 replay=$2 mode=$3 steering=$4 flows=$5 seconds=${6:-4} segments=${7:-}
# Less in total than the capacity of the queues, so that no packet is dropped.
[ -n "$segments" ] || segments=$((flows < 4 ? 256 : 768 / flows))
node=capacity-node-$$ user=capacity-user-$$
place=$(mktemp -d)
pid= other=
end() {
    [ -z "$other" ] || kill "$other" 2>/dev/null || true
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    ip netns delete "$node" 2>/dev/null || true
    ip netns delete "$user" 2>/dev/null || true
    rm -r "$place"
}
trap end EXIT
trap 'exit 130' INT TERM
ip netns add "$node"
ip netns add "$user"
for one in 1 2; do
    ip -n "$node" link add "link$one" type veth peer name "link$one" netns "$user"
    ip -n "$node" address add "192.0.$one.1/24" dev "link$one"
    ip -n "$user" address add "192.0.$one.2/24" dev "link$one"
    ip -n "$node" link set "link$one" up
    ip -n "$user" link set "link$one" up
done
ip netns exec "$node" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
{
    printf 'role = "node"\nmode = "%s"\nsteering = "%s"\ncontrol = "%s/control"\n' "$mode" "$steering" "$place"
    printf '[tun]\nname = "edge0"\naddresses = ["10.88.0.1/24"]\nmtu = 1400\n'
    for one in 1 2; do
        printf '[[link]]\nname = "link%s"\nlocal = "192.0.%s.1:7400"\nremote = "192.0.%s.2:7400"\nrate = "4gbit"\nqueue = 1000\n' $one $one $one
    done
} >"$place/node.toml"
ip netns exec "$node" taskset -c 0 "$program" run --config "$place/node.toml" >"$place/node.log" 2>&1 &
pid=$!
mkfifo "$place/ready"
: >"$place/output"
ip netns exec "$user" taskset -c 1 "$replay" "$pid" "$flows" "$segments" "$seconds" \
    192.0.1.2:7400 192.0.1.1:7400 192.0.2.2:7400 192.0.2.1:7400 <"$place/ready" >"$place/output" 2>"$place/errors" &
other=$!
exec 3>"$place/ready"
tries=0
until grep -q 'far0 is up' "$place/output"; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { cat "$place/errors" >&2; exit 1; }
    sleep 0.1
done
ip -n "$user" link set far0 netns "$node"
ip -n "$node" link set far0 txqueuelen 1000 up
ip -n "$node" route add 10.99.0.1/32 dev far0
echo go >&3
wait "$other" || { cat "$place/errors" "$place/node.log" >&2; exit 1; }
other=
grep '^{' "$place/output" | sed "s|{|{\"mode\":\"$mode\",\"steering\":\"$steering\",\"flows\":$flows,|"
