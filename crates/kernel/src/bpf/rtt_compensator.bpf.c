// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * RTT compensator: LIA's rule under another name. The twin of rtt_compensator.rs; see there for the
 * source.
 */
#include "lia.h"

SETTINGS();

static __always_inline real increase(struct tcp_sock *tp, real acked)
{
	return lia_increase(tp, acked);
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	return window_fixed(tp) / 2;
}

TWIN(sl_rttcomp);
