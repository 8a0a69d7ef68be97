/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The congestion window and the behavior common to all algorithms; the twin of window.rs.
 *
 * The kernel's window is in whole packets. Its fraction is kept separately, in units of 2^-20
 * packets, so that windows match the papers: a step is rounded down by less than 2^-20 packets, and
 * steps add up. In recovery the kernel approaches ssthresh gradually (RFC 6937) and reaches it at
 * the end; the fraction of ssthresh is then that of the window.
 */
#ifndef SUMLINK_WINDOW_H
#define SUMLINK_WINDOW_H

#include "real.h"

#define FRACTION_BITS 20
#define PACKET (1ull << FRACTION_BITS)

/*
 * Settings that user space writes before loading: the common ones, followed by the algorithm's own,
 * eight bytes each. Those of type real may have fractions, times are in microseconds, flags are 0
 * or 1.
 */
#define SETTINGS(own)                                                                              \
	const volatile struct {                                                                    \
		__u64 max_cwnd;                                                                    \
		__u64 min_ssthresh;                                                                \
		own                                                                                \
	} settings SEC(".rodata.settings") = {}

/* First part of the kernel's per-socket state of the algorithm. */
struct window {
	__u32 fraction; /* of the window, in 2^-20 packets */
	__u32 fraction_before; /* before the last reduction, which may turn out to be spurious */
	__u32 ssthresh_fraction; /* of ssthresh, in 2^-20 packets */
	__u32 min_rtt_us; /* 0 before the first sample */
	__u32 last_rtt_us; /* 0 before the first sample */
	__u32 acks; /* acknowledgments in a row since the last loss */
	__u32 since_last; /* packets acknowledged since the last loss, at most 2^32 - 1 */
	__u32 last_two; /* packets acknowledged between the last two losses */
	__u64 bond; /* its bond, 0 if none */
	__u16 place; /* in the bond */
	__u8 begun; /* init was called, and release will be */
	__u8 sampled; /* the last acknowledgment had a sample, last_rtt_us */
	__u32 delivered; /* tp->delivered at the last measured acknowledgment */
	__u32 answered_ssthresh; /* the program's last answer for ssthresh */
	__u32 last_cwnd; /* the kernel's window after the last acknowledgment */
};

static __always_inline struct tcp_sock *tcp_sock(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline void *state(struct tcp_sock *tp)
{
	return tp->inet_conn.icsk_ca_priv;
}

/* The window in 2^-20 packets. */
static __always_inline __u64 window_fixed(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	return ((__u64)tp->snd_cwnd << FRACTION_BITS) + window->fraction;
}

static __always_inline real window_real(struct tcp_sock *tp)
{
	return real_make(window_fixed(tp), -FRACTION_BITS);
}

static __always_inline __u64 srtt_us(struct tcp_sock *tp)
{
	return tp->srtt_us >> 3;
}

static __always_inline __u64 ssthresh_fixed(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	return ((__u64)tp->snd_ssthresh << FRACTION_BITS) + window->ssthresh_fraction;
}

static __always_inline bool in_slow_start(struct tcp_sock *tp)
{
	return window_fixed(tp) < ssthresh_fixed(tp);
}

/* Whether a loss or a timeout is being repaired. */
static __always_inline bool repairs(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) > TCP_CA_Disorder;
}

/* Whether nothing is being repaired and nothing is missing. */
static __always_inline bool is_open(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) == TCP_CA_Open;
}

/* Whether a loss is being repaired without a timeout, or the window is reduced for another reason. */
static __always_inline bool is_in_recovery(struct tcp_sock *tp)
{
	return repairs(tp) && BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) != TCP_CA_Loss;
}

/* Whether the window limits the flow (tcp_is_cwnd_limited in Linux). */
static __always_inline bool is_limited(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static __always_inline void set_window(struct tcp_sock *tp, __u64 fixed, __u64 max_cwnd)
{
	struct window *window = state(tp);
	__u64 most = min(max_cwnd, tp->snd_cwnd_clamp);

	fixed = max(min(fixed, most << FRACTION_BITS), PACKET);
	tp->snd_cwnd = fixed >> FRACTION_BITS;
	window->fraction = fixed & (PACKET - 1);
}

static __always_inline void set_ssthresh(struct tcp_sock *tp, __u64 fixed, __u64 min_ssthresh)
{
	struct window *window = state(tp);

	fixed = max(fixed, min_ssthresh << FRACTION_BITS);
	tp->snd_ssthresh = fixed >> FRACTION_BITS;
	window->answered_ssthresh = tp->snd_ssthresh;
	window->ssthresh_fraction = fixed & (PACKET - 1);
}

/*
 * Grows by this many 2^-20 packets, up to ssthresh. Returns the packets left for congestion
 * avoidance.
 */
static __always_inline real grow_to_ssthresh(struct tcp_sock *tp, __u64 growth, __u64 max_cwnd)
{
	__u64 window = window_fixed(tp), used = min(growth, ssthresh_fixed(tp) - window);

	set_window(tp, window + used, max_cwnd);
	return real_make(growth - used, -FRACTION_BITS);
}

/*
 * First step of an algorithm for every acknowledgment: slow start. Returns the packets left for
 * congestion avoidance, 0 if the window must not grow.
 */
static __always_inline real slow_start(struct tcp_sock *tp, __u32 acked, __u64 max_cwnd)
{
	__u64 all = (__u64)acked << FRACTION_BITS;

	if (!is_limited(tp))
		return 0;
	/* RFC 3465, section 2.2, without a limit per acknowledgment, as in Linux */
	return in_slow_start(tp) ? grow_to_ssthresh(tp, all, max_cwnd) : real_make(all, -FRACTION_BITS);
}

/* Adds a step in packets. */
static __always_inline void grow(struct tcp_sock *tp, real step, __u64 max_cwnd)
{
	set_window(tp, window_fixed(tp) + real_fixed(step, FRACTION_BITS), max_cwnd);
}

/*
 * Subtracts a part from a step and returns the rest. If the part is larger, the window shrinks by
 * the difference, and ssthresh with it, so that shrinking does not cause slow start. The rest is
 * then 0.
 */
static __always_inline real subtract(struct tcp_sock *tp, real step, real part, __u64 max_cwnd)
{
	__u64 more = real_fixed(step, FRACTION_BITS), less = real_fixed(part, FRACTION_BITS);
	struct window *window = state(tp);
	__u64 fixed = window_fixed(tp);

	if (more >= less)
		return real_make(more - less, -FRACTION_BITS);
	less -= more;
	set_window(tp, fixed > less ? fixed - less : 0, max_cwnd);
	if (in_slow_start(tp)) {
		tp->snd_ssthresh = tp->snd_cwnd;
		window->ssthresh_fraction = window->fraction;
	}
	return 0;
}

/* RFC 5681, section 3.1, equation 3: Reno's growth in packets. */
static __always_inline real reno_increase(struct tcp_sock *tp, real acked)
{
	return real_divide(acked, window_real(tp));
}

/*
 * Linux 6.18 was once seen with a window of 120 295 895 packets, and once with a threshold of 2 165
 * 326 104. Apparently these were values from its stack, as if it had not run the requested program;
 * the cause is unknown. The functions below revert values that no program can have computed. They
 * allow twice the window and some packets, because the kernel itself may exceed it briefly.
 */
#define IMPLAUSIBLE(value, known) ((value) > 2 * (__u64)(known) + 16)

/*
 * Checks the threshold after the kernel has asked for it: replaces one far above the former window
 * by Reno's.
 */
static __always_inline void check_ssthresh(struct tcp_sock *tp, __u64 min_ssthresh)
{
	struct window *window = state(tp);

	if (tp->snd_ssthresh == window->answered_ssthresh || tp->snd_ssthresh == TCP_INFINITE_SSTHRESH ||
	    !IMPLAUSIBLE(tp->snd_ssthresh, tp->prior_cwnd))
		return;
	window->answered_ssthresh = max(tp->prior_cwnd / 2, min_ssthresh);
	tp->snd_ssthresh = window->answered_ssthresh;
}

/*
 * Checks the window after a spurious reduction: replaces one far above the former window by that.
 */
static __always_inline void check_window(struct tcp_sock *tp)
{
	struct window *window = state(tp);
	__u32 most = max(max(window->last_cwnd, tp->prior_cwnd), window->answered_ssthresh);

	/* The SYN-ACK is acknowledged before init, which resets the state. */
	if (!window->begun || !IMPLAUSIBLE(tp->snd_cwnd, most))
		return;
	tp->snd_cwnd = max(most, 1);
}

/* Ends the processing of the current acknowledgment. */
static __always_inline void leave_window(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->last_cwnd = tp->snd_cwnd;
}

/*
 * Reduces the threshold to this many 2^-20 packets, or min_ssthresh. Returns ssthresh in the
 * kernel's units.
 */
static __always_inline __u32 reduce(struct tcp_sock *tp, __u64 fixed, __u64 min_ssthresh)
{
	struct window *window = state(tp);

	if (window->since_last > 0) {
		window->last_two = window->since_last;
		window->since_last = 0;
	}
	fixed = max(fixed, min_ssthresh << FRACTION_BITS);
	window->fraction_before = window->fraction;
	window->fraction = fixed & (PACKET - 1);
	window->ssthresh_fraction = window->fraction;
	window->answered_ssthresh = fixed >> FRACTION_BITS;
	return window->answered_ssthresh;
}

/* The kernel has just set the window to whole packets after a timeout, so there is no fraction. */
static __always_inline void enter_loss(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->fraction = 0;
}

/*
 * After an idle time the kernel halves whole packets, and its threshold is at least three quarters
 * of them (tcp_cwnd_restart in Linux). It does so after this function, and ignores fractions.
 */
static __always_inline void restart_window(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->fraction = 0;
	window->ssthresh_fraction = 0;
}

/* The loss was spurious: the kernel restores ssthresh, except for its fraction. */
static __always_inline __u32 undo(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->fraction = window->fraction_before;
	window->ssthresh_fraction = 0;
	return max(tp->snd_cwnd, tp->prior_cwnd);
}

/*
 * Number of packets that this acknowledgment newly acknowledges, cumulatively or selectively; call
 * it once per acknowledgment.
 */
static __always_inline __u32 newly_delivered(struct tcp_sock *tp)
{
	struct window *window = state(tp);
	__u32 acked = tp->delivered - window->delivered;

	window->delivered = tp->delivered;
	return acked;
}

/* Round-trip time of the current acknowledgment, 0 without a sample. */
static __always_inline __u32 sample_us(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	return window->sampled ? window->last_rtt_us : 0;
}

/* Records the measurements of an acknowledgment. */
static __always_inline void measure(struct tcp_sock *tp, __u32 acked, const struct ack_sample *sample)
{
	struct window *window = state(tp);
	__s32 rtt_us = sample->rtt_us;

	window->since_last += min(acked, ~0u - window->since_last);
	window->sampled = rtt_us >= 0;
	if (rtt_us < 0)
		return;
	/* A sample below 1 us counts as 1 us, because 0 means no sample. */
	rtt_us = max(rtt_us, 1);
	window->last_rtt_us = rtt_us;
	if (window->min_rtt_us == 0 || (__u32)rtt_us < window->min_rtt_us)
		window->min_rtt_us = rtt_us;
}

#endif
