// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* BALIA, the balanced linked adaptation. The twin of balia.rs; see there for the source. */
#include "twin.h"

SETTINGS();

/* Rate of the fastest path over the rate of this one: at least 1. */
static __always_inline real alpha(struct tcp_sock *tp, const struct totals *all)
{
	return real_divide(all->fastest, real_divide(window_real(tp), real_of(srtt_us(tp))));
}

static __always_inline real increase(struct tcp_sock *tp, real acked)
{
	struct totals all = totals(tp);
	real rtt, a, step;

	if (all.flows == 0)
		return reno_increase(tp, acked);
	rtt = real_of(srtt_us(tp));
	a = alpha(tp, &all);
	/* Peng et al., the increase of BALIA: x / (rtt (sum x)^2) (1 + a)/2 (4 + a)/5 */
	step = real_divide(real_divide(window_real(tp), rtt), rtt);
	step = real_divide(step, real_multiply(all.rate, all.rate));
	step = real_multiply(step, real_add(real_of(1), a));
	step = real_multiply(step, real_add(real_of(4), a));
	return real_divide(real_multiply(step, acked), real_of(10));
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	real most = real_make(3, -1), a = real_of(1);
	struct totals all = totals(tp);
	__u64 own = window_fixed(tp);

	if (all.flows)
		a = alpha(tp, &all);
	/* Peng et al., the decrease of BALIA: min(a, 1.5) halves of the window */
	return own - real_fixed(real_multiply(window_real(tp), min(a, most)), FRACTION_BITS) / 2;
}

TWIN(sl_balia);
