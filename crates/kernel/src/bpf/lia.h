/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* LIA's increase, also used by other algorithms. */
#ifndef SUMLINK_LIA_H
#define SUMLINK_LIA_H

#include "twin.h"

/*
 * RFC 6356, section 3, equation 2, divided by the sum of the windows, which reduces to best /
 * rate^2.
 */
static __always_inline real lia_alpha_per_window(const struct totals *totals)
{
	return real_divide(totals->best, real_multiply(totals->rate, totals->rate));
}

static __always_inline real lia_increase(struct tcp_sock *tp, real acked)
{
	real most = reno_increase(tp, acked);
	struct totals all = totals(tp);

	if (all.flows == 0)
		return most;
	/* RFC 6356, section 3, equation 1 */
	return min(real_multiply(lia_alpha_per_window(&all), acked), most);
}

#endif
