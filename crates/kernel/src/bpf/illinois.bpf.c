// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Illinois: the higher the queueing delay, the smaller the steps up and the larger the step down.
 * The twin of illinois.rs; see there for the source.
 */
#include "rounds.h"

SETTINGS(real alpha_min; real alpha_max; real beta_min; real beta_max; __u64 win_thresh; __u64 theta;);

/* Shares of a window are in units of 2^-32. */
#define SHARE_BITS 32
#define RENO_BETA (1u << 31)

struct illinois {
	struct window window;
	struct delays delays;
	struct round round;
	real alpha; /* growth of the window in packets per round trip */
	__u32 beta; /* share of the window that a loss costs */
	__u32 max_rtt_us;
	__u16 rounds_low; /* rounds since the delay was high */
	__u16 was_high;
};

_Static_assert(sizeof(struct illinois) <= ICSK_CA_PRIV_SIZE, "the kernel has no more room");

static __always_inline void forget_delay(struct illinois *illinois)
{
	illinois->was_high = 0;
	illinois->rounds_low = 0;
}

static __always_inline void start(struct sock *sk)
{
	struct illinois *illinois = state(tcp_sock(sk));

	begin_delays(&illinois->delays);
	first_round(&illinois->round, tcp_sock(sk));
	illinois->alpha = settings.alpha_max;
	illinois->beta = RENO_BETA;
	illinois->max_rtt_us = 0;
	forget_delay(illinois);
}

NOTHING(finish)
NOTHING(recovered)

static __always_inline void measured(struct sock *sk, __u32 acked, __u32 rtt_us)
{
	struct illinois *illinois = state(tcp_sock(sk));

	note(&illinois->delays, rtt_us);
	illinois->max_rtt_us = max(illinois->max_rtt_us, rtt_us);
}

/* alpha for the mean queueing delay of a round and the largest one seen, both in nanoseconds. */
static __always_inline real alpha(struct illinois *illinois, __u64 delay, __u64 most)
{
	/* All times here are scaled by 100: the low delay is then `most`. */
	__u64 delays = 100 * delay, spread;
	real span;

	if (delays > most) {
		illinois->was_high = 1;
		/* Liu et al., f1: k1 / (k2 + delay) is alpha_max at `low` and alpha_min at `most` */
		spread = real_fixed(settings.alpha_max, SHARE_BITS) - real_fixed(settings.alpha_min, SHARE_BITS);
		span = real_divide(settings.alpha_min, real_make(spread, -SHARE_BITS));
		span = real_multiply(span, real_of(99 * most));
		return real_divide(real_multiply(span, settings.alpha_max),
				   real_add(span, real_of(delays - most)));
	}
	if (illinois->was_high) {
		illinois->rounds_low++;
		if (illinois->rounds_low < settings.theta)
			return illinois->alpha;
		forget_delay(illinois);
	}
	return settings.alpha_max;
}

static __always_inline __u32 beta(__u64 delay, __u64 most)
{
	__u64 min_share = real_fixed(settings.beta_min, SHARE_BITS);
	__u64 max_share = real_fixed(settings.beta_max, SHARE_BITS);
	real part;

	/* Liu et al., f2: a line from beta_min at a tenth of `most` to beta_max at eight tenths */
	if (10 * delay <= most)
		return min_share;
	if (10 * delay >= 8 * most)
		return max_share;
	part = real_divide(real_of(10 * delay - most), real_of(7 * most));
	if (max_share >= min_share)
		return min_share + real_fixed(real_multiply(part, real_make(max_share - min_share, 0)), 0);
	return min_share - real_fixed(real_multiply(part, real_make(min_share - max_share, 0)), 0);
}

/* Once per round trip. */
static __always_inline void update_steps(struct tcp_sock *tp)
{
	struct illinois *illinois = state(tp);
	__u64 mean = mean_ns(&illinois->delays), least = illinois->window.min_rtt_us * 1000ull;
	__u64 most = illinois->max_rtt_us * 1000ull;

	if (window_fixed(tp) < settings.win_thresh << FRACTION_BITS) {
		illinois->alpha = real_of(1);
		illinois->beta = RENO_BETA;
	} else if (mean >= least && mean) {
		illinois->alpha = alpha(illinois, mean - least, most - least);
		illinois->beta = beta(mean - least, most - least);
	}
}

static __always_inline void acknowledged(struct sock *sk, __u32 acked)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct illinois *illinois = state(tp);
	real left;

	if (is_over(&illinois->round, tp)) {
		update_steps(tp);
		begin_delays(&illinois->delays);
	}
	left = slow_start(tp, acked, settings.max_cwnd);
	/* Liu et al.: alpha / w for each acknowledgment */
	if (left)
		grow(tp, real_divide(real_multiply(left, illinois->alpha), window_real(tp)), settings.max_cwnd);
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	struct illinois *illinois = state(tp);
	real left = real_make((1ull << SHARE_BITS) - illinois->beta, -SHARE_BITS);

	/* Liu et al.: w - beta w */
	return real_fixed(real_multiply(window_real(tp), left), FRACTION_BITS);
}

static __always_inline void timed_out(struct sock *sk)
{
	struct illinois *illinois = state(tcp_sock(sk));

	illinois->alpha = real_of(1);
	illinois->beta = RENO_BETA;
	forget_delay(illinois);
	restart_round(&illinois->round);
	begin_delays(&illinois->delays);
}

NOTHING(idled)

OPERATIONS(sl_illinois);
