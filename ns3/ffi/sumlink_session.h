/* A C ABI for one end of a bond: the engine's session with one stream; the caller provides the
 * carriers. src/session.rs documents the functions. Times are in nanoseconds.
 * SPDX-License-Identifier: MIT */
#ifndef SUMLINK_SESSION_H
#define SUMLINK_SESSION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sumlink_session sumlink_session;

typedef struct {
    uint64_t srtt;
    uint64_t rttvar;
    uint64_t min_rtt;
    uint64_t cwnd;
    uint64_t ssthresh;
    uint64_t in_flight;
    uint64_t unsent;
    uint64_t delivery_rate;
    uint64_t segments;
    uint64_t retransmitted;
    uint64_t delivered;
    uint64_t received;
    uint32_t mss;
    uint8_t loss;
    uint8_t full;
} sumlink_session_sample_t;

typedef struct {
    uint64_t written;
    uint64_t read;
    uint64_t duplicates_sent;
    uint64_t reorder_peak;
    uint64_t active_paths;
} sumlink_session_counters_t;

sumlink_session *sumlink_session_new(const char *scheduler, uint8_t opens, uint64_t now, char *error, size_t room);
void sumlink_session_free(sumlink_session *end);
void sumlink_session_path_up(sumlink_session *end, uint32_t path, uint64_t now);
void sumlink_session_path_down(sumlink_session *end, uint32_t path, uint64_t now);
void sumlink_session_path_sample(sumlink_session *end, uint32_t path, const sumlink_session_sample_t *sample, uint64_t now);
const uint8_t *sumlink_session_poll_transmit(sumlink_session *end, uint32_t path, size_t budget, uint64_t now, size_t *len);
uint8_t sumlink_session_handle_frames(sumlink_session *end, uint32_t path, const uint8_t *data, size_t len, uint64_t now);
uint64_t sumlink_session_poll_timeout(const sumlink_session *end);
void sumlink_session_handle_timeout(sumlink_session *end, uint64_t now);
size_t sumlink_session_write(sumlink_session *end, const uint8_t *data, size_t len, uint64_t now);
const uint8_t *sumlink_session_read(sumlink_session *end, uint64_t now, size_t *len);
void sumlink_session_counters(const sumlink_session *end, sumlink_session_counters_t *counters);

#ifdef __cplusplus
}
#endif

#endif
