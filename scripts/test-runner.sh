#!/bin/sh
# Cargo's runner for test programs. Tests of whole programs, of the laboratory and of sockets have
# the processor before unit tests and simulations, which compute without waiting for real time.
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
