/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* HyStart++ (RFC 9406): leaves the first slow start when the delay grows. The twin of hystart.rs. */
#ifndef SUMLINK_HYSTART_H
#define SUMLINK_HYSTART_H

#include "rounds.h"

/*
 * Its settings, in the order of hystart.rs, placed among those of an algorithm. Times are in
 * microseconds.
 */
struct hystart_settings {
	__u64 min_rtt_threshold;
	__u64 max_rtt_threshold;
	__u64 min_rtt_divisor;
	__u64 samples;
	__u64 css_growth_divisor;
	__u64 css_rounds;
	__u64 growth_limit;
};

/* The state of one slow start. */
struct hystart {
	struct round round;
	__u32 current_us; /* currentRoundMinRTT, 0 without a sample */
	__u32 samples; /* of this round */
	__u32 last_us; /* lastRoundMinRTT, 0 without one */
	__u32 baseline_us; /* cssBaselineMinRtt, 0 outside of conservative slow start */
	__u32 css_rounds; /* completed in conservative slow start */
};

static __always_inline void hystart_begin(struct hystart *hystart, struct tcp_sock *tp)
{
	first_round(&hystart->round, tp);
	hystart->current_us = 0;
	hystart->samples = 0;
	hystart->last_us = 0;
	hystart->baseline_us = 0;
	hystart->css_rounds = 0;
}

/* Compares this round with the last one, or with the baseline. */
static __always_inline void hystart_judge(struct hystart *hystart,
					  const volatile struct hystart_settings *settings)
{
	__u64 last = hystart->last_us * 1000ull, threshold;

	if (hystart->current_us == 0 || hystart->samples < settings->samples)
		return;
	/* RFC 9406, section 4.2 */
	if (hystart->baseline_us) {
		if (hystart->current_us < hystart->baseline_us) {
			hystart->baseline_us = 0;
			hystart->css_rounds = 0;
		}
		return;
	}
	threshold = min(last / settings->min_rtt_divisor, settings->max_rtt_threshold * 1000);
	threshold = max(threshold, settings->min_rtt_threshold * 1000);
	if (last && hystart->current_us * 1000ull >= last + threshold)
		hystart->baseline_us = hystart->current_us;
}

/*
 * Growth of the window in 2^-20 packets by this acknowledgment, with a sample of rtt_us, or 0
 * without one.
 */
static __always_inline __u64 hystart_growth(struct hystart *hystart, struct tcp_sock *tp, __u32 acked, __u32 rtt_us,
					    const volatile struct hystart_settings *settings)
{
	__u64 growth = min(acked, settings->growth_limit) << FRACTION_BITS;

	/* RFC 9406, section 4.2 */
	if (is_over(&hystart->round, tp)) {
		hystart->last_us = hystart->current_us;
		hystart->current_us = 0;
		hystart->samples = 0;
		if (hystart->baseline_us)
			hystart->css_rounds++;
	}
	if (hystart->baseline_us)
		growth /= settings->css_growth_divisor;
	if (rtt_us) {
		if (hystart->current_us == 0 || rtt_us < hystart->current_us)
			hystart->current_us = rtt_us;
		hystart->samples++;
	}
	hystart_judge(hystart, settings);
	return growth;
}

/* Whether slow start has ended: congestion avoidance continues from the current window. */
static __always_inline bool hystart_is_over(const struct hystart *hystart,
					    const volatile struct hystart_settings *settings)
{
	return hystart->baseline_us && hystart->css_rounds >= settings->css_rounds;
}

#endif
