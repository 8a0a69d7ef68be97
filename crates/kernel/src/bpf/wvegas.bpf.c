// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * wVegas, weighted Vegas: every path keeps a few packets in its queue, faster paths more than slow
 * ones. The twin of wvegas.rs; see there for the source.
 */
#include "rounds.h"

SETTINGS(__u64 total_alpha; __u64 initial_alpha; __u64 gamma; __u64 drain;);

/* A round with fewer samples than this is not evaluated. */
#define MIN_SAMPLES 3
/* The smallest window without a loss. */
#define MIN_WINDOW (2 * PACKET)
#define NO_QUEUEING (~0ull)

struct wvegas {
	struct window window;
	struct delays delays;
	struct round round;
	__u64 min_queueing; /* ns, the minimum of a round since the queue was last drained */
	__u32 alpha; /* the path's share of the packets that the bond may queue */
};

_Static_assert(sizeof(struct wvegas) <= ICSK_CA_PRIV_SIZE, "the kernel has no more room");

/* Discards measurements from before a loss or an idle time. */
static __always_inline void discard_measurements(struct wvegas *wvegas)
{
	restart_round(&wvegas->round);
	begin_delays(&wvegas->delays);
	wvegas->alpha = settings.initial_alpha;
	wvegas->min_queueing = NO_QUEUEING;
}

static __always_inline void start(struct sock *sk)
{
	struct wvegas *wvegas = state(tcp_sock(sk));

	discard_measurements(wvegas);
	first_round(&wvegas->round, tcp_sock(sk));
}

NOTHING(finish)
NOTHING(timed_out)

static __always_inline void measured(struct sock *sk, __u32 acked, __u32 rtt_us)
{
	struct wvegas *wvegas = state(tcp_sock(sk));

	note(&wvegas->delays, rtt_us);
}

/*
 * The acknowledgment that ends a recovery has already been measured, and belongs to the next round.
 */
static __always_inline void recovered(struct sock *sk)
{
	struct wvegas *wvegas = state(tcp_sock(sk));

	discard_measurements(wvegas);
	note(&wvegas->delays, sample_us(tcp_sock(sk)));
}

/* Reno's growth, while no delay is known. */
static __always_inline void reno(struct tcp_sock *tp, __u32 acked)
{
	real left = slow_start(tp, acked, settings.max_cwnd);

	if (left)
		grow(tp, reno_increase(tp, left), settings.max_cwnd);
}

/* Moves the threshold below the window. */
static __always_inline void end_slow_start(struct tcp_sock *tp)
{
	__u64 window = window_fixed(tp);

	set_ssthresh(tp, min(ssthresh_fixed(tp), window > PACKET ? window - PACKET : 0), settings.min_ssthresh);
}

/*
 * alpha: packets in proportion to the path's share of the bond's rate; `rate` is the path's, in
 * packets per microsecond.
 */
static __always_inline __u32 part(struct tcp_sock *tp, real rate)
{
	real total = rate, weight;
	__u64 packets;

	if (srtt_us(tp) == 0)
		return settings.initial_alpha;
	for (__u32 place = 0; place < MAX_SIBLINGS; place++) {
		struct flow *flow = sibling(tp, place);

		if (flow)
			total = real_add(total, real_divide(real_make(flow->window, -FRACTION_BITS),
							    real_of(flow->srtt_us)));
	}
	/* Cao et al.: the weight is the share of the rate */
	weight = real_divide(rate, total);
	packets = real_fixed(real_multiply(weight, real_of(settings.total_alpha)), 0);
	return max(packets, settings.initial_alpha);
}

/* Drains the queue when its delay has doubled since the minimum. */
static __always_inline void drain(struct tcp_sock *tp, __u64 queueing, real base, real rtt)
{
	struct wvegas *wvegas = state(tp);
	real left;

	wvegas->min_queueing = min(wvegas->min_queueing, queueing);
	if (queueing == 0 || queueing < 2 * wvegas->min_queueing)
		return;
	/* Cao et al., the queue is drained by reducing the window to base / (2 rtt) of its value */
	left = real_divide(real_multiply(window_real(tp), base), rtt);
	set_window(tp, real_fixed(left, FRACTION_BITS) / 2, settings.max_cwnd);
	wvegas->min_queueing = NO_QUEUEING;
}

/* Once per round trip, with a mean of `rtt_ns`. */
static __always_inline void adapt(struct tcp_sock *tp, __u32 acked, __u64 rtt_ns)
{
	struct wvegas *wvegas = state(tp);
	__u64 base_ns = wvegas->window.min_rtt_us * 1000ull;
	__u64 queueing = rtt_ns - base_ns, before = window_fixed(tp), after, diff;
	real rtt = real_of(rtt_ns), base = real_of(base_ns);
	bool limited = is_limited(tp);

	/*
	 * Cao et al., diff: the share of a round trip that a packet waits, and so the share of the
	 * window
	 */
	diff = real_fixed(real_divide(real_multiply(window_real(tp), real_of(queueing)), rtt), 0);
	if (in_slow_start(tp)) {
		if (diff <= settings.gamma) {
			slow_start(tp, acked, settings.max_cwnd);
		} else {
			after = real_fixed(real_divide(real_multiply(window_real(tp), base), rtt), 0) + 1;
			set_window(tp, min(before, after << FRACTION_BITS), settings.max_cwnd);
			end_slow_start(tp);
		}
	} else {
		if (diff >= wvegas->alpha)
			wvegas->alpha = part(tp, real_multiply(real_divide(window_real(tp), rtt), real_of(1000)));
		if (diff > wvegas->alpha) {
			set_window(tp, before > PACKET ? before - PACKET : 0, settings.max_cwnd);
			end_slow_start(tp);
		} else if (diff < wvegas->alpha && limited) {
			set_window(tp, before + PACKET, settings.max_cwnd);
		}
		if (settings.drain)
			drain(tp, queueing, base, rtt);
	}
	after = max(window_fixed(tp), min(before, MIN_WINDOW));
	set_window(tp, after, settings.max_cwnd);
	/* As in Linux: three quarters of the window, so that slow start returns there */
	set_ssthresh(tp, max(ssthresh_fixed(tp), window_fixed(tp) / 4 * 3), settings.min_ssthresh);
}

static __always_inline void acknowledged(struct sock *sk, __u32 acked)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct wvegas *wvegas = state(tp);
	__u64 rtt_ns;

	if (repairs(tp)) {
		reno(tp, acked);
	} else if (is_over(&wvegas->round, tp)) {
		rtt_ns = mean_ns(&wvegas->delays);
		if (wvegas->delays.count >= MIN_SAMPLES && rtt_ns >= wvegas->window.min_rtt_us * 1000ull)
			adapt(tp, acked, rtt_ns);
		else
			reno(tp, acked);
		begin_delays(&wvegas->delays);
	} else {
		slow_start(tp, acked, settings.max_cwnd);
	}
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	return window_fixed(tp) / 2;
}

/* As in Linux; not called after an idle time shorter than the retransmission timeout. */
static __always_inline void idled(struct sock *sk)
{
	discard_measurements(state(tcp_sock(sk)));
}

OPERATIONS(sl_wvegas);
