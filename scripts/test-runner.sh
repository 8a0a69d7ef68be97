#!/bin/sh
# Cargo's runner for test programs. Unit tests and simulations do not depend on real time, and run
# at a lower priority than the tests of complete programs, the laboratory and sockets.
case "${1##*/}" in
    sumlink_engine-* | sumlink_sim-* | sumlink_edge-* | sumlink_link-* | sumlink_congestion-* | \
        sumlink_mmwave-* | sumlink_bond-* | sumlink_scenario-* | sumlink_schedulers-* | \
        golden-* | worlds-* | edge-* | tcp-* | own-* | scripts-* | network-* | properties-* | random-*)
        exec nice -n 10 "$@"
        ;;
    *)
        exec "$@"
        ;;
esac
