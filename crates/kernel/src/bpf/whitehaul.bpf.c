// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * WhiteHaul: Illinois changed for long wireless links, with its flaws. The twin of whitehaul.rs; see
 * there for the source.
 */
#include "rounds.h"

SETTINGS(__u64 initial_ssthresh; __u64 advertised; __u64 advertised_2; __u64 advertised_3; __u64 budget; __u64 theta; __u64 win_thresh; __u64 alpha_max;
	 real beta;);

/* Larger samples are clamped to this: U32_MAX / ALPHA_MAX microseconds (line 30). */
#define MAX_RTT_US 671088
/* Samples no larger than this do not become the base (lines 23 and 140). */
#define MIN_BASE_US 100

struct whitehaul {
	struct window window;
	struct delays delays;
	struct round round;
	__u64 acked; /* packets since the window last grew */
	__u32 base_us; /* smallest sample above MIN_BASE_US, 0 without one */
	__u32 alpha; /* growth of the window in packets per round trip */
	__u16 rtt_above; /* the delay has exceeded the budget */
	__u16 rtt_low; /* rounds below the budget since */
};

_Static_assert(sizeof(struct whitehaul) <= ICSK_CA_PRIV_SIZE, "the kernel has no more room");

static __always_inline void start(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct whitehaul *whitehaul = state(tp);

	set_ssthresh(tp, settings.initial_ssthresh << FRACTION_BITS, settings.min_ssthresh);
	begin_delays(&whitehaul->delays);
	first_round(&whitehaul->round, tp);
	whitehaul->acked = 0;
	whitehaul->base_us = 0;
	whitehaul->alpha = settings.alpha_max;
	whitehaul->rtt_above = 0;
	whitehaul->rtt_low = 0;
}

NOTHING(finish)
NOTHING(recovered)

static __always_inline void measured(struct sock *sk, __u32 acked, __u32 rtt_us)
{
	struct whitehaul *whitehaul = state(tcp_sock(sk));

	/* lines 133 to 149 */
	rtt_us = min(rtt_us, MAX_RTT_US);
	note(&whitehaul->delays, rtt_us);
	if (rtt_us > MIN_BASE_US && (whitehaul->base_us == 0 || rtt_us < whitehaul->base_us))
		whitehaul->base_us = rtt_us;
}

/* The advertised window of this subflow, in 2^-20 packets. */
static __always_inline __u64 advertised(struct tcp_sock *tp)
{
	struct window *window = state(tp);
	__u64 own = 0;

	/* lines 426 to 453 */
	if (window->bond && window->place == 1)
		own = settings.advertised_2;
	else if (window->bond && window->place == 2)
		own = settings.advertised_3;
	return (own ? own : settings.advertised) << FRACTION_BITS;
}

/*
 * Whether a round with this mean is above the budget. Without a base, or with a mean below it, the
 * listing's unsigned numbers wrap around, which counts as above.
 */
static __always_inline bool above_budget(const struct whitehaul *whitehaul, __u64 mean)
{
	__u64 base = whitehaul->base_us * 1000ull;

	return base == 0 || mean < base || mean - base > settings.budget * 1000;
}

static __always_inline __u32 alpha(struct tcp_sock *tp, bool above)
{
	struct whitehaul *whitehaul = state(tp);

	/* lines 225 to 258 */
	if (above) {
		whitehaul->rtt_above = 1;
		return 1;
	}
	if (window_fixed(tp) >= advertised(tp))
		return 1;
	if (whitehaul->rtt_above) {
		whitehaul->rtt_low++;
		if (whitehaul->rtt_low < settings.theta)
			return whitehaul->alpha;
		whitehaul->rtt_above = 0;
		whitehaul->rtt_low = 0;
	}
	return settings.alpha_max;
}

/* Once per round trip. */
static __always_inline void update_alpha(struct tcp_sock *tp)
{
	struct whitehaul *whitehaul = state(tp);
	__u64 mean = mean_ns(&whitehaul->delays);

	/* lines 305 to 312 */
	if (window_fixed(tp) < settings.win_thresh << FRACTION_BITS)
		whitehaul->alpha = 1;
	else if (whitehaul->delays.count)
		whitehaul->alpha = alpha(tp, above_budget(whitehaul, mean));
}

static __always_inline void clamp(struct tcp_sock *tp)
{
	struct whitehaul *whitehaul = state(tp);
	__u64 limit = advertised(tp);

	/* lines 363 to 383 */
	if (is_open(tp) && !in_slow_start(tp) && window_fixed(tp) >= limit && whitehaul->rtt_above) {
		set_window(tp, limit, settings.max_cwnd);
		set_ssthresh(tp, window_fixed(tp), settings.min_ssthresh);
	}
}

static __always_inline void avoid_congestion(struct tcp_sock *tp, __u32 acked)
{
	struct whitehaul *whitehaul = state(tp);
	__u64 delta, cwnd = tp->snd_cwnd;

	/* lines 452 to 471 */
	whitehaul->acked += acked;
	delta = whitehaul->acked * whitehaul->alpha;
	if (cwnd && delta >= cwnd) {
		set_window(tp, window_fixed(tp) + (delta / cwnd << FRACTION_BITS), settings.max_cwnd);
		whitehaul->acked = 0;
	}
}

static __always_inline void acknowledged(struct sock *sk, __u32 acked)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct whitehaul *whitehaul = state(tp);

	if (is_over(&whitehaul->round, tp)) {
		update_alpha(tp);
		begin_delays(&whitehaul->delays);
		clamp(tp);
	}
	if (!is_limited(tp))
		return;
	if (in_slow_start(tp))
		slow_start(tp, acked, settings.max_cwnd);
	else
		avoid_congestion(tp, acked);
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	__u64 less = real_fixed(real_multiply(window_real(tp), settings.beta), 0) << FRACTION_BITS;

	/* lines 486 to 489 */
	return window_fixed(tp) - less;
}

static __always_inline void timed_out(struct sock *sk)
{
	struct whitehaul *whitehaul = state(tcp_sock(sk));

	/* lines 354 to 360 */
	whitehaul->alpha = 1;
	whitehaul->rtt_above = 0;
	whitehaul->rtt_low = 0;
	restart_round(&whitehaul->round);
	begin_delays(&whitehaul->delays);
}

NOTHING(idled)

OPERATIONS(sl_whitehaul);
