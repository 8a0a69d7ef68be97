/* A C ABI for sumlink's congestion controls: those of the flows of one connection, coupled with each
 * other. src/bond.rs documents the functions. Windows are in packets, times in nanoseconds.
 * SPDX-License-Identifier: MIT */
#ifndef SUMLINK_CONGESTION_H
#define SUMLINK_CONGESTION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sumlink_bond sumlink_bond;

typedef struct {
    uint64_t now;
    uint64_t rtt;
    uint64_t acknowledged;
    uint64_t sent;
    uint32_t acked;
    uint32_t in_flight;
} sumlink_bond_ack_t;

sumlink_bond *sumlink_bond_new(const char *name, uint8_t flows, char *error, size_t room);
void sumlink_bond_free(sumlink_bond *bond);
void sumlink_bond_on_ack(sumlink_bond *bond, uint8_t flow, const sumlink_bond_ack_t *ack);
void sumlink_bond_on_loss(sumlink_bond *bond, uint8_t flow, uint64_t now);
void sumlink_bond_on_rto(sumlink_bond *bond, uint8_t flow, uint64_t now, uint8_t repeated);
void sumlink_bond_on_recovery_exit(sumlink_bond *bond, uint8_t flow, uint64_t now);
void sumlink_bond_on_idle_end(sumlink_bond *bond, uint8_t flow, uint64_t now, uint64_t lasted);
double sumlink_bond_cwnd(const sumlink_bond *bond, uint8_t flow);
double sumlink_bond_ssthresh(const sumlink_bond *bond, uint8_t flow);
uint64_t sumlink_bond_rttvar(const sumlink_bond *bond, uint8_t flow);
uint64_t sumlink_bond_srtt(const sumlink_bond *bond, uint8_t flow);

#ifdef __cplusplus
}
#endif

#endif
