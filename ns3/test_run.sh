#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Tests of `ns3/run`: invalid arguments give one line and exit code 2; short runs produce
# measurements; the paper's claims hold.
cd "$(dirname "$0")" || exit 1
failed=0
refuses() {
    wanted=$1
    shift
    said=$(./run "$@" 2>&1)
    code=$?
    if [ "$code" -ne 2 ] || [ "$(printf '%s\n' "$said" | wc -l)" -ne 1 ] || ! printf '%s' "$said" | grep -qF -- "$wanted"; then
        echo "ns3/run $*: exit code $code, said: $said" >&2
        failed=1
    fi
}
refuses 'unknown figure `fig99`' fig99
refuses 'the following arguments are required: figure'
refuses 'unknown system `mptcp`' fig12 --systems lwip,mptcp
refuses 'unknown system `mptcp:tahoe`' fig12 --systems mptcp:tahoe
refuses 'unknown system `sumlink`' fig12 --systems sumlink
refuses 'unknown system `sumlink:best`' fig12 --systems sumlink:best
refuses 'csma has no system `sumlink:fbdt`' csma --systems sumlink:fbdt
refuses '--out: fig6 is a trace over time' fig6 --out nowhere
refuses 'csma has no system `lwip`' csma --systems lwip
refuses 'fig6 needs a node between two links' fig6 --systems lte
refuses 'mptcp:lia needs one user' fig13 --systems mptcp:lia
refuses 'mptcp:lia needs one user' fig12 --users 2 --systems mptcp:lia
refuses 'mptcp:lia needs one user' fig10 --systems mptcp:lia
refuses '--load must be a number' csma --load -1
refuses 'unknown system `lte:qdepl`' fig12 --systems lte:qdepl
refuses 'unknown system ``' fig12 --systems ''
refuses 'unknown system `lwip:`' fig12 --systems lwip:
refuses 'unknown system `lwip@sack=strip`; only lwip+visible has parameters' fig12 --systems lwip@sack=strip
refuses 'unknown system `lwip+visible@sack=maybe`' fig12 --systems lwip+visible@sack=maybe
refuses 'unknown system `lwip+visible@`' fig12 --systems lwip+visible@
refuses 'only lwip+visible has parameters' csma --systems mptcp:lia@boost=off
refuses '--users must be a number from 1 to 4, with fig12 or fig13' fig13 --users 5
refuses '--users must be a number from 1 to 4, with fig12 or fig13' csma --users 2
refuses '--jobs must be a whole number' fig12 --jobs 0
refuses '--seeds must be a whole number' fig12 --seeds 0
refuses '--seeds must be a whole number' fig12 --seeds -3
refuses '--seeds must be a whole number' fig12 --seeds many
refuses '--seconds must be a number' fig12 --seconds nan
refuses '--segment must be a whole number' fig12 --segment 1460
line=$(./run fig12 --json --systems lwip --seconds 1) || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"outcome":"measured"')" -eq 3 ] || {
    echo "ns3/run fig12 --json: $line" >&2
    failed=1
}
# Each link carries data: a broken one would leave a measurement of almost 0.
line=$(./run fig12 --json --systems lte,wifi --seconds 1) || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"goodput_bps":[1-9][0-9]\{6\}')" -eq 6 ] || {
    echo "ns3/run fig12 --json, a link alone: $line" >&2
    failed=1
}
line=$(./run fig13 --json --systems lwip,lwa --seconds 1) || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"goodput_bps":[1-9][0-9]\{6\}.*"users":4')" -eq 6 ] || {
    echo "ns3/run fig13 --json: $line" >&2
    failed=1
}
# Parameters reach the node: without boosting the counter stays 0, and both systems keep their
# names.
line=$(./run fig12 --json --systems lwip+visible,lwip+visible@boost=off:sack=strip --seconds 1 --sack) || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"system":"lwip+visible@boost=off:sack=strip".*"boosted":0,')" -eq 3 ] &&
    printf '%s\n' "$line" | grep -q '"system":"lwip+visible",.*"boosted":[1-9]' || {
    echo "ns3/run fig12 --json, parameters: $line" >&2
    failed=1
}
line=$(./run fig13 --json --users 2 --systems lwip --seconds 1) || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"outcome":"measured".*"users":2')" -eq 3 ] || {
    echo "ns3/run fig13 --users 2 --json: $line" >&2
    failed=1
}
# The paper's claim: on g and a, VISIBLE has at least twice the goodput of basic LWIP, whether
# senders use SACK or not.
for sack in '' --sack; do
    # shellcheck disable=SC2086
    ./run fig12 --json --systems lwip,lwip+visible --seconds 5 $sack | python3 -c '
import json, sys
rates = {}
for line in sys.stdin:
    run = json.loads(line)
    rates[run["scenario"], run["system"]] = run["goodput_bps"]
scenarios = [scenario for scenario, system in rates if system == "lwip" and not scenario.endswith("11b")]
assert len(scenarios) == 2 and len(rates) == 6, rates
for scenario in scenarios:
    assert rates[scenario, "lwip+visible"] > 2 * rates[scenario, "lwip"] > 0, (scenario, rates)
' || {
        echo "ns3/run fig12 $sack: VISIBLE has less than twice the goodput of LWIP" >&2
        failed=1
    }
done
# Each acknowledgment has a line: advancing ones are passed on unchanged, held ones are not.
lines=$(./run fig6 --seconds 1) || failed=1
for what in '"what":"advance","ack":\([0-9]*\),"passed":\1,' '"what":"hold","ack":[0-9]*,"passed":null' \
    '"what":"boost","ack":[0-9]*,"passed":[0-9]' '"what":"repair"'; do
    printf '%s\n' "$lines" | grep -q "$what" || {
        echo "ns3/run fig6: no line has $what" >&2
        failed=1
    }
done
./run fig10 --seconds 1 | grep -q '"cwnd":[1-9]' || {
    echo "ns3/run fig10: no line has a window" >&2
    failed=1
}
if python3 -c 'import matplotlib' 2>/dev/null; then
    drawn=$(mktemp -d)
    for figure in fig6 fig8 "fig12 --systems lwip"; do
        # shellcheck disable=SC2086
        { ./run $figure --seconds 1 --svg "$drawn/figure.svg" >/dev/null && grep -q '</svg>' "$drawn/figure.svg"; } || {
            echo "ns3/run $figure --svg: no picture" >&2
            failed=1
        }
    done
    rm -r "$drawn"
else
    said=$(./run fig6 --svg nowhere.svg 2>&1)
    [ $? -eq 1 ] && printf '%s' "$said" | grep -qF 'install matplotlib' || {
        echo "ns3/run --svg without matplotlib said: $said" >&2
        failed=1
    }
fi
# The bond carries data, and its bytes match their offsets (or the run fails). Records have the
# laboratory's format.
kept=$(mktemp -d)
line=$(./run fig12 --json --systems lte,wifi,sumlink:fbdt,sumlink:minrtt --seconds 1 --sack --out "$kept") || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"system":"sumlink:.*"goodput_bps":[1-9][0-9]\{6\}')" -eq 6 ] || {
    echo "ns3/run fig12 --json, sumlink: $line" >&2
    failed=1
}
for program in ../target/release/sumlink-lab ../target/debug/sumlink-lab; do
    [ -x "$program" ] || continue
    if ! "$program" report "$kept" >/dev/null || ! grep -q 'sumlink:minrtt' "$kept/report.html"; then
        echo "sumlink-lab report: no page for the runs of ns3/run --out" >&2
        failed=1
    fi
    break
done
rm -r "$kept"
# Every topology carries data, and so do the default bonds of fig12, each under its name.
for figure in csma wifi-csma manet-static manet-mobile full-mesh dual-homed; do
    line=$(./run $figure --json --systems mptcp:lia --seconds 2) || failed=1
    [ "$(printf '%s\n' "$line" | grep -c '"system":"mptcp:lia".*"goodput_bps":[1-9][0-9]\{4\}')" -eq 1 ] || {
        echo "ns3/run $figure --json: $line" >&2
        failed=1
    }
done
line=$(./run fig12 --json --seconds 1) || failed=1
for control in uncoupled coupled lia; do
    [ "$(printf '%s\n' "$line" | grep -c "\"system\":\"mptcp:$control\".*\"goodput_bps\":[1-9][0-9]\{6\}")" -eq 3 ] || {
        echo "ns3/run fig12 --json, mptcp:$control: $line" >&2
        failed=1
    }
done
exit $failed
