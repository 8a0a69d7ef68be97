// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * CS218: LIA, faster after a time without losses and at low delay. The twin of cs218.rs; see there
 * for the source.
 */
#include "lia.h"

SETTINGS(__u64 acks; __u64 capped;);

static __always_inline real increase(struct tcp_sock *tp, real acked)
{
	struct window *window = state(tp);
	real most = reno_increase(tp, acked);
	struct totals all = totals(tp);
	real step;

	if (all.flows == 0)
		return most;
	/* CS 218 report, section 3.2.3: (alpha + DWND) / w_total, DWND = alpha best / last round-trip time */
	step = real_multiply(lia_alpha_per_window(&all), acked);
	if (window->acks > settings.acks && window->last_rtt_us)
		step = real_add(step, real_multiply(step, real_divide(real_of(window->min_rtt_us),
								      real_of(window->last_rtt_us))));
	return settings.capped ? min(step, most) : step;
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->acks = 0;
	return window_fixed(tp) / 2;
}

TWIN(sl_cs218);
