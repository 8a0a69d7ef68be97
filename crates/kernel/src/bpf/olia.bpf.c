// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* OLIA, the opportunistic linked increases. The twin of olia.rs; see there for the source. */
#include "twin.h"

SETTINGS();

/* Quality of a path: l / rtt^2, which B maximizes. */
static __always_inline real quality(const struct flow *flow)
{
	real rtt = real_of(flow->srtt_us);

	return real_divide(real_divide(real_of(flow->longest), rtt), rtt);
}

/* Windows are compared in whole packets, as in the reference. */
static __always_inline __u64 whole_window(const struct flow *flow)
{
	return flow->window >> FRACTION_BITS;
}

struct sets {
	real best; /* the best quality */
	__u64 largest; /* the largest window */
	__u64 gaining; /* number of best paths without the largest window */
	__u64 largest_ones; /* number of paths with the largest window */
};

static __always_inline void compare(struct sets *sets, const struct flow *flow)
{
	sets->best = max(sets->best, quality(flow));
	sets->largest = max(sets->largest, whole_window(flow));
}

static __always_inline void count(struct sets *sets, const struct flow *flow)
{
	if (whole_window(flow) == sets->largest)
		sets->largest_ones++;
	else if (quality(flow) == sets->best)
		sets->gaining++;
}

static __always_inline real increase(struct tcp_sock *tp, real acked)
{
	struct window *window = state(tp);
	struct totals all = totals(tp);
	struct flow own = {
		.window = window_fixed(tp),
		.longest = max(window->since_last, window->last_two),
		.srtt_us = srtt_us(tp),
	};
	struct sets sets = {};
	real step, rtt, part;

	if (all.flows == 0)
		return reno_increase(tp, acked);
	compare(&sets, &own);
	for (__u32 place = 0; place < MAX_SIBLINGS; place++) {
		struct flow *flow = sibling(tp, place);

		if (flow)
			compare(&sets, flow);
	}
	count(&sets, &own);
	for (__u32 place = 0; place < MAX_SIBLINGS; place++) {
		struct flow *flow = sibling(tp, place);

		if (flow)
			count(&sets, flow);
	}
	/* Khalili et al., the increase of OLIA: (w / rtt^2) / (sum x)^2 + epsilon / w */
	rtt = real_of(own.srtt_us);
	step = real_divide(real_divide(window_real(tp), rtt), rtt);
	step = real_divide(step, real_multiply(all.rate, all.rate));
	step = real_multiply(step, acked);
	if (sets.gaining == 0)
		return step;
	part = reno_increase(tp, acked);
	if (whole_window(&own) == sets.largest) {
		part = real_divide(part, real_of(all.flows * sets.largest_ones));
		/* A negative step is subtracted from the window here, and 0 is returned to add. */
		return subtract(tp, step, part, settings.max_cwnd);
	}
	if (quality(&own) == sets.best)
		step = real_add(step, real_divide(part, real_of(all.flows * sets.gaining)));
	return step;
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	return window_fixed(tp) / 2;
}

TWIN(sl_olia);
