// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * EWTCP: each of n flows takes a share of Reno's step. The twin of ewtcp.rs; see there for the
 * source.
 */
#include "twin.h"

SETTINGS(__u64 sqrt_power;);

/* 2^32 / sqrt(n), rounded down; an exact 2^32 for n = 1. */
static const __u64 weights[MAX_SIBLINGS + 2] = {
	1ull << 32,  1ull << 32,  3037000499u, 2479700524u, 2147483648u, 1920767766u,
	1753413056u, 1623345050u, 1518500249u, 1431655765u, 1358187913u, 1294981364u,
	1239850262u, 1191209600u, 1147878293u, 1108955787u, 1073741824u, 1041682577u,
};

static __always_inline real increase(struct tcp_sock *tp, real acked)
{
	real step = reno_increase(tp, acked);
	struct totals all = totals(tp);
	__u64 flows = min(all.flows, MAX_SIBLINGS + 1);
	real weight = real_make(weights[flows], -32);

	/* CS 218 report, section 1: a = 1 / sqrt(n); the power is at most 8 */
	for (__u32 power = 0; power < 8; power++)
		if (power < settings.sqrt_power)
			step = real_multiply(step, weight);
	return step;
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	return window_fixed(tp) / 2;
}

TWIN(sl_ewtcp);
