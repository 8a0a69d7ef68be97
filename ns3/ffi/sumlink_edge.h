/* A C ABI for sumlink's edge core. src/node.rs and src/receiver.rs document the functions and their
 * requirements. Packets are a pointer and a length, times in nanoseconds.
 * SPDX-License-Identifier: MIT */
#ifndef SUMLINK_EDGE_H
#define SUMLINK_EDGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SUMLINK_EDGE_PACKET_MAX 65538
#define SUMLINK_EDGE_TOO_SMALL SIZE_MAX
#define SUMLINK_EDGE_NEVER UINT64_MAX

typedef struct sumlink_edge sumlink_edge;
typedef struct sumlink_reorder sumlink_reorder;

typedef struct {
    const char *mode;
    const char *steering;
    const char *sack;
    uint8_t boost;
    uint8_t links;
    uint32_t queue;
    const double *rates;
} sumlink_edge_config;

typedef struct {
    uint64_t resets;
    uint64_t malformed;
    uint64_t down_packets;
    uint64_t dropped;
    uint64_t up_packets;
    uint64_t duplicates;
    uint64_t boosted;
    uint64_t held;
    uint64_t unneeded;
    uint64_t repaired;
    uint64_t repaired_behind;
    uint64_t repaired_late;
} sumlink_edge_counters_t;

typedef struct {
    uint64_t outstanding;
    uint64_t owed;
    uint32_t duplicates;
    uint32_t retransmissions;
    double held_average;
    uint64_t held_for;
} sumlink_edge_flow_t;

sumlink_edge *sumlink_edge_new(const sumlink_edge_config *config, char *error, size_t room);
void sumlink_edge_free(sumlink_edge *edge);
void sumlink_edge_handle_far(sumlink_edge *edge, const uint8_t *packet, size_t len, uint64_t now);
void sumlink_edge_handle_user(sumlink_edge *edge, const uint8_t *packet, size_t len, uint64_t now);
size_t sumlink_edge_poll_link(sumlink_edge *edge, uint8_t link, uint64_t now, uint8_t *out, size_t room);
size_t sumlink_edge_poll_far(sumlink_edge *edge, uint8_t *out, size_t room);
uint64_t sumlink_edge_poll_timeout(const sumlink_edge *edge);
void sumlink_edge_handle_timeout(sumlink_edge *edge, uint64_t now);
size_t sumlink_edge_link_queue(const sumlink_edge *edge, uint8_t link);
double sumlink_edge_link_rate(const sumlink_edge *edge, uint8_t link);
void sumlink_edge_counters(const sumlink_edge *edge, sumlink_edge_counters_t *out);
uint8_t sumlink_edge_flow(const sumlink_edge *edge, uint16_t port, sumlink_edge_flow_t *out);

sumlink_reorder *sumlink_reorder_new(uint64_t timer);
void sumlink_reorder_free(sumlink_reorder *reorder);
void sumlink_reorder_handle(sumlink_reorder *reorder, const uint8_t *pdu, size_t len, uint64_t now);
size_t sumlink_reorder_poll(sumlink_reorder *reorder, uint8_t *out, size_t room);
uint64_t sumlink_reorder_poll_timeout(const sumlink_reorder *reorder);
void sumlink_reorder_handle_timeout(sumlink_reorder *reorder, uint64_t now);

#ifdef __cplusplus
}
#endif

#endif
