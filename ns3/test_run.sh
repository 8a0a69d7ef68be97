#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# What `ns3/run` refuses, with one line and exit code 2; short runs, whose lines must be measurements; what the paper is about.
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
refuses 'no figure is called `fig99`' fig99
refuses 'the following arguments are required: figure'
refuses 'no system is called `mptcp`' fig12 --systems lwip,mptcp
refuses 'no system is called `mptcp:tahoe`' fig12 --systems mptcp:tahoe
refuses 'no system is called `sumlink`' fig12 --systems sumlink
refuses 'no system is called `sumlink:best`' fig12 --systems sumlink:best
refuses 'no system of csma is called `sumlink:fbdt`' csma --systems sumlink:fbdt
refuses '--out: fig6 tells what happens over time' fig6 --out nowhere
refuses 'no system of csma is called `lwip`' csma --systems lwip
refuses 'fig6 is about a node between two links' fig6 --systems lte
refuses 'mptcp:lia is for one user' fig13 --systems mptcp:lia
refuses 'mptcp:lia is for one user' fig12 --users 2 --systems mptcp:lia
refuses 'mptcp:lia is for one user' fig10 --systems mptcp:lia
refuses '--load is a number' csma --load -1
refuses 'no system is called `lte:qdepl`' fig12 --systems lte:qdepl
refuses 'no system is called ``' fig12 --systems ''
refuses 'no system is called `lwip:`' fig12 --systems lwip:
refuses 'no system is called `lwip@sack=strip`: lwip+visible alone has parameters' fig12 --systems lwip@sack=strip
refuses 'no system is called `lwip+visible@sack=maybe`' fig12 --systems lwip+visible@sack=maybe
refuses 'no system is called `lwip+visible@`' fig12 --systems lwip+visible@
refuses 'lwip+visible alone has parameters' csma --systems mptcp:lia@boost=off
refuses '--users is a number from 1 to 4, of fig12 or fig13' fig13 --users 5
refuses '--users is a number from 1 to 4, of fig12 or fig13' csma --users 2
refuses '--jobs is a whole number' fig12 --jobs 0
refuses '--seeds is a whole number' fig12 --seeds 0
refuses '--seeds is a whole number' fig12 --seeds -3
refuses '--seeds is a whole number' fig12 --seeds many
refuses '--seconds is a number' fig12 --seconds nan
refuses '--segment is a whole number' fig12 --segment 1460
line=$(./run fig12 --json --systems lwip --seconds 1) || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"outcome":"measured"')" -eq 3 ] || {
    echo "ns3/run fig12 --json: $line" >&2
    failed=1
}
# Each link carries: one that is lost leaves a measurement, too, but of next to nothing.
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
# Parameters reach the node: without boosting nothing is boosted, and both are measured under their own names.
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
# What the paper is about: on g and a VISIBLE has at least twice what basic LWIP has, whether senders use SACK or not.
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
        echo "ns3/run fig12 $sack: VISIBLE has less than twice what LWIP has" >&2
        failed=1
    }
done
# Each acknowledgement has its line: what advances is passed on as it came, what is held is not.
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
# The bond carries, and its bytes are those of their places (or the run fails). What is kept is as the laboratory keeps it.
kept=$(mktemp -d)
line=$(./run fig12 --json --systems lte,wifi,sumlink:fbdt,sumlink:minrtt --seconds 1 --sack --out "$kept") || failed=1
[ "$(printf '%s\n' "$line" | grep -c '"system":"sumlink:.*"goodput_bps":[1-9][0-9]\{6\}')" -eq 6 ] || {
    echo "ns3/run fig12 --json, sumlink: $line" >&2
    failed=1
}
for program in ../target/release/sumlink-lab ../target/debug/sumlink-lab; do
    [ -x "$program" ] || continue
    if ! "$program" report "$kept" >/dev/null || ! grep -q 'sumlink:minrtt' "$kept/report.html"; then
        echo "sumlink-lab report: no page of what ns3/run --out has kept" >&2
        failed=1
    fi
    break
done
rm -r "$kept"
# Every topology carries, and so do the bonds that fig12 has where nothing is said, each under its name.
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
