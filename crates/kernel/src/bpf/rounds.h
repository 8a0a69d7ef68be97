/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Round trips and the delays measured in them. The twin of rounds.rs. */
#ifndef SUMLINK_ROUNDS_H
#define SUMLINK_ROUNDS_H

#include "twin.h"

/* The current round trip; it ends when data sent after its start is acknowledged. */
struct round {
	__u32 end; /* first sequence number not yet sent at its start */
	__u32 under_way; /* 0 if the next acknowledgment starts it */
};

/* State at the start of a flow: the first acknowledgment ends the first round. */
static __always_inline void first_round(struct round *round, struct tcp_sock *tp)
{
	round->end = tp->snd_una;
	round->under_way = 1;
}

/* Lets the next acknowledgment start a new round. */
static __always_inline void restart_round(struct round *round)
{
	round->under_way = 0;
}

/* Whether this acknowledgment ends the round; if so, the next round starts with it. */
static __always_inline bool is_over(struct round *round, struct tcp_sock *tp)
{
	bool over = round->under_way && (__s32)(tp->snd_una - round->end) > 0;

	if (over || !round->under_way) {
		round->end = tp->snd_nxt;
		round->under_way = 1;
	}
	return over;
}

/* The round-trip times of a round. */
struct delays {
	__u64 sum_us;
	__u32 count;
};

static __always_inline void note(struct delays *delays, __u32 rtt_us)
{
	if (rtt_us == 0)
		return;
	delays->sum_us += rtt_us;
	delays->count++;
}

static __always_inline void begin_delays(struct delays *delays)
{
	delays->sum_us = 0;
	delays->count = 0;
}

/* Mean in nanoseconds, as in the reference; 0 without a sample. */
static __always_inline __u64 mean_ns(const struct delays *delays)
{
	return delays->count ? delays->sum_us * 1000 / delays->count : 0;
}

#endif
