// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Coupled: all windows grow and shrink as one. The twin of coupled.rs; see there for the source. */
#include "twin.h"

SETTINGS();

/* The sum of all windows in packets; the flow's own until it has been measured. */
static __always_inline real total_window(struct tcp_sock *tp)
{
	struct totals all = totals(tp);

	return all.flows ? all.window : window_real(tp);
}

static __always_inline real increase(struct tcp_sock *tp, real acked)
{
	/* CS 218 report, section 1 */
	return real_divide(acked, total_window(tp));
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	__u64 own = window_fixed(tp);
	__u64 less = real_fixed(total_window(tp), FRACTION_BITS) / 2;

	/* CS 218 report, section 1; the minimum is min_ssthresh */
	return own > less ? own - less : 0;
}

TWIN(sl_coupled);
