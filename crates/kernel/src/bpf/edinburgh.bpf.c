// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Edinburgh: WhiteHaul without its flaws. The twin of edinburgh.rs; see there for the source.
 *
 * Rounds and rates continue while losses are repaired, when the kernel asks for no window. They are
 * therefore updated on every measured acknowledgment; only their effect on the window is deferred.
 */
#include "hystart.h"

SETTINGS(__u64 initial_ssthresh; __u64 grows; __u64 theta; __u64 advertised; __u64 budget; real budget_share; __u64 budget_min; __u64 budget_max; real fill; real alpha_max; real beta;
	 __u64 win_thresh; __u64 hystart; struct hystart_settings hystart_settings;);

/* Number of rounds for which a delivery rate is remembered. */
#define ROUNDS 10

/* More than the kernel stores for a congestion control, so it is in socket storage. */
struct edinburgh {
	real rates[ROUNDS]; /* packets per microsecond in the last rounds; the oldest is overwritten */
	real advertised; /* window to step back to with this acknowledgment, 0 for none */
	__u64 since_us; /* start of this round, 0 if unknown */
	struct delays delays;
	struct round round;
	struct hystart hystart;
	__u32 next; /* index of the oldest rate */
	__u32 acked; /* packets acknowledged in this round */
	__u32 fast; /* grow by alpha_max packets per round trip instead of one */
	__u32 spiked; /* the delay has exceeded the budget, see edinburgh.rs */
	__u32 low_rounds; /* rounds below the budget since */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct edinburgh);
} sl_edinburgh_own SEC(".maps");

/*
 * Null if the kernel had no memory for it at the start of the flow: the window then grows by one
 * packet per round trip.
 */
static __always_inline struct edinburgh *own(struct sock *sk)
{
	return bpf_sk_storage_get(&sl_edinburgh_own, sk, 0, 0);
}

static __always_inline void start(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct edinburgh *edinburgh =
		bpf_sk_storage_get(&sl_edinburgh_own, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (settings.initial_ssthresh)
		set_ssthresh(tp, settings.initial_ssthresh << FRACTION_BITS, settings.min_ssthresh);
	if (!edinburgh)
		return;
	for (__u32 at = 0; at < ROUNDS; at++)
		edinburgh->rates[at] = 0;
	edinburgh->advertised = 0;
	edinburgh->since_us = 0;
	begin_delays(&edinburgh->delays);
	first_round(&edinburgh->round, tp);
	hystart_begin(&edinburgh->hystart, tp);
	edinburgh->next = 0;
	edinburgh->acked = 0;
	edinburgh->fast = 1;
	edinburgh->spiked = 0;
	edinburgh->low_rounds = 0;
}

static __always_inline void finish(struct sock *sk)
{
	bpf_sk_storage_delete(&sl_edinburgh_own, sk);
}

NOTHING(recovered)

/* Records the delivery rate of the round that ends now. */
static __always_inline void end_delivery(struct edinburgh *edinburgh, struct tcp_sock *tp)
{
	__u64 now = tp->tcp_mstamp;

	if (edinburgh->since_us && now > edinburgh->since_us && edinburgh->next < ROUNDS) {
		edinburgh->rates[edinburgh->next] =
			real_divide(real_of(edinburgh->acked), real_of(now - edinburgh->since_us));
		edinburgh->next++;
		if (edinburgh->next == ROUNDS)
			edinburgh->next = 0;
	}
	edinburgh->since_us = now;
	edinburgh->acked = 0;
}

/* The accepted queueing delay, in microseconds. */
static __always_inline real budget(real base)
{
	real share = min(real_multiply(base, settings.budget_share), real_of(settings.budget_max));

	if (settings.budget)
		return real_of(settings.budget);
	return max(share, real_of(settings.budget_min));
}

/* The window that fills the path and a part of the budget, in packets; 0 if the path is unknown. */
static __always_inline real advertised(const struct edinburgh *edinburgh, real base, real budget)
{
	real best = 0, window;

	if (settings.advertised)
		return real_of(settings.advertised);
	for (__u32 at = 0; at < ROUNDS; at++)
		best = max(best, edinburgh->rates[at]);
	if (best == 0)
		return 0;
	window = real_multiply(best, real_add(base, real_multiply(settings.fill, budget)));
	return max(window, real_of(settings.win_thresh));
}

/*
 * Whether the window grows fast, after a round with a delay above the budget or not, and with a
 * window that is small, or has reached the advertised one.
 */
static __always_inline bool is_fast(struct edinburgh *edinburgh, bool above, bool small, bool reached)
{
	if (above || settings.grows)
		edinburgh->spiked = above;
	if (small || above || reached)
		return false;
	if (edinburgh->spiked) {
		edinburgh->low_rounds++;
		if (edinburgh->low_rounds < settings.theta)
			return edinburgh->fast;
		edinburgh->spiked = 0;
		edinburgh->low_rounds = 0;
	}
	return true;
}

/* Once per round trip: sets the step, and steps back above the budget. */
static __always_inline void end_round(struct edinburgh *edinburgh, struct tcp_sock *tp)
{
	struct window *window = state(tp);
	__u64 mean = mean_ns(&edinburgh->delays), base_ns = window->min_rtt_us * 1000ull, now;
	real base = real_of(window->min_rtt_us), most, limit;
	bool above, small;

	if (mean == 0 || mean < base_ns)
		return;
	most = budget(base);
	limit = advertised(edinburgh, base, most);
	above = real_of(mean - base_ns) > real_multiply(most, real_of(1000));
	/* In recovery the kernel's window is approaching ssthresh. */
	now = is_in_recovery(tp) ? ssthresh_fixed(tp) : window_fixed(tp);
	small = now < settings.win_thresh << FRACTION_BITS;
	edinburgh->fast = is_fast(edinburgh, above, small, limit && real_make(now, -FRACTION_BITS) >= limit);
	if (edinburgh->spiked)
		edinburgh->advertised = limit;
}

static __always_inline void measured(struct sock *sk, __u32 acked, __u32 rtt_us)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct edinburgh *edinburgh = own(sk);

	if (!edinburgh)
		return;
	edinburgh->advertised = 0;
	if (acked == 0)
		return;
	note(&edinburgh->delays, rtt_us);
	edinburgh->acked += acked;
	if (is_over(&edinburgh->round, tp)) {
		end_delivery(edinburgh, tp);
		end_round(edinburgh, tp);
		begin_delays(&edinburgh->delays);
	}
}

/* Slow start, the first one with HyStart++. Returns the packets left for congestion avoidance. */
static __always_inline real begin_slow_start(struct edinburgh *edinburgh, struct tcp_sock *tp, __u32 acked)
{
	__u64 growth;

	if (!settings.hystart || !is_limited(tp) || tp->snd_ssthresh < TCP_INFINITE_SSTHRESH || !in_slow_start(tp))
		return slow_start(tp, acked, settings.max_cwnd);
	growth = hystart_growth(&edinburgh->hystart, tp, acked, sample_us(tp), &settings.hystart_settings);
	if (hystart_is_over(&edinburgh->hystart, &settings.hystart_settings)) {
		set_ssthresh(tp, window_fixed(tp), 0);
		return real_of(acked);
	}
	return grow_to_ssthresh(tp, growth, settings.max_cwnd);
}

static __always_inline void acknowledged(struct sock *sk, __u32 acked)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct edinburgh *edinburgh = own(sk);
	real left, alpha = real_of(1);

	if (!edinburgh) {
		left = slow_start(tp, acked, settings.max_cwnd);
		if (left)
			grow(tp, reno_increase(tp, left), settings.max_cwnd);
		return;
	}
	if (edinburgh->advertised && is_open(tp) && !in_slow_start(tp) && window_real(tp) >= edinburgh->advertised) {
		set_window(tp, real_fixed(edinburgh->advertised, FRACTION_BITS), settings.max_cwnd);
		set_ssthresh(tp, window_fixed(tp), settings.min_ssthresh);
	}
	edinburgh->advertised = 0;
	if (edinburgh->fast)
		alpha = settings.alpha_max;
	left = begin_slow_start(edinburgh, tp, acked);
	if (left)
		grow(tp, real_divide(real_multiply(left, alpha), window_real(tp)), settings.max_cwnd);
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	__u64 less = real_fixed(real_multiply(window_real(tp), settings.beta), FRACTION_BITS);

	return window_fixed(tp) - less;
}

static __always_inline void timed_out(struct sock *sk)
{
	struct edinburgh *edinburgh = own(sk);

	if (!edinburgh)
		return;
	edinburgh->fast = 0;
	edinburgh->spiked = 0;
	edinburgh->low_rounds = 0;
	restart_round(&edinburgh->round);
	begin_delays(&edinburgh->delays);
	edinburgh->since_us = 0;
}

NOTHING(idled)

OPERATIONS(sl_edinburgh);
