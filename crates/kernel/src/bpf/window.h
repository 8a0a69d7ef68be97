/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The congestion window, and what all algorithms do to it alike; the twin of window.rs.
 *
 * The kernel's window is whole packets. Its fraction is kept beside it, in parts of 2^-20 packets, so that windows are what
 * they are in the papers: a step is rounded down by less than 2^-20 packets and adds up. In recovery the kernel approaches
 * ssthresh gradually (RFC 6937) and is there when it ends; the fraction that belongs to ssthresh is then that of the window.
 */
#ifndef SUMLINK_WINDOW_H
#define SUMLINK_WINDOW_H

#include "real.h"

#define FRACTION_BITS 20
#define PACKET (1ull << FRACTION_BITS)

/*
 * What user space sets before loading: settings that all have, and below them the algorithm's own, eight bytes each. Those of
 * the type real are numbers that need not be whole, times are microseconds, flags 0 or 1.
 */
#define SETTINGS(own)                                                                              \
	const volatile struct {                                                                    \
		__u64 max_cwnd;                                                                    \
		__u64 min_ssthresh;                                                                \
		own                                                                                \
	} settings SEC(".rodata.settings") = {}

/* At the beginning of what the kernel keeps for the algorithm, for each socket. */
struct window {
	__u32 fraction; /* of the window, in 2^-20 packets */
	__u32 fraction_before; /* before the last reduction, which can turn out to have been wrong */
	__u32 ssthresh_fraction; /* of ssthresh, in 2^-20 packets */
	__u32 min_rtt_us; /* 0 before the first sample */
	__u32 last_rtt_us; /* 0 before the first sample */
	__u32 acks; /* acknowledgments in a row since the last loss */
	__u32 since_last; /* packets acknowledged since the last loss, no more than 2^32 - 1 */
	__u32 last_two; /* packets acknowledged between the last two losses */
	__u64 bond; /* of which siblings it is one, 0 if of none */
	__u16 place; /* among them */
	__u8 begun; /* init was called, and release will be */
	__u8 sampled; /* the last acknowledgment has measured last_rtt_us */
	__u32 delivered; /* tp->delivered when the last acknowledgment was measured */
	__u32 told_ssthresh; /* what the program last said of ssthresh */
	__u32 left_cwnd; /* the kernel's window when the last acknowledgment was dealt with */
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

/* Whether a loss is being repaired without a timeout, or the window is reduced for another reason. */
static __always_inline bool is_in_recovery(struct tcp_sock *tp)
{
	return repairs(tp) && BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) != TCP_CA_Loss;
}

/* Whether the window is what keeps the flow from sending more (tcp_is_cwnd_limited in Linux). */
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
	window->told_ssthresh = tp->snd_ssthresh;
	window->ssthresh_fraction = fixed & (PACKET - 1);
}

/* Grows by so many 2^-20 packets, but not beyond ssthresh. Returns the packets that are left for congestion avoidance. */
static __always_inline real grow_to_ssthresh(struct tcp_sock *tp, __u64 growth, __u64 max_cwnd)
{
	__u64 window = window_fixed(tp), used = min(growth, ssthresh_fixed(tp) - window);

	set_window(tp, window + used, max_cwnd);
	return real_make(growth - used, -FRACTION_BITS);
}

/*
 * What an algorithm does first with every acknowledgment: slow start. Returns the packets that are left for congestion
 * avoidance, 0 if it is not its turn.
 */
static __always_inline real slow_start(struct tcp_sock *tp, __u32 acked, __u64 max_cwnd)
{
	__u64 all = (__u64)acked << FRACTION_BITS;

	if (!is_limited(tp))
		return 0;
	/* RFC 3465, section 2.2, without a limit for one acknowledgment, as in Linux */
	return in_slow_start(tp) ? grow_to_ssthresh(tp, all, max_cwnd) : real_make(all, -FRACTION_BITS);
}

/* Adds a step in packets. */
static __always_inline void grow(struct tcp_sock *tp, real step, __u64 max_cwnd)
{
	set_window(tp, window_fixed(tp) + real_fixed(step, FRACTION_BITS), max_cwnd);
}

/*
 * What is left of a step after a part is taken from it. If the part is larger, the window shrinks by the difference, and
 * ssthresh with it: no flow comes into slow start by shrinking. Then nothing is left.
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

/* RFC 5681, section 3.1, equation 3: by how many packets Reno grows. */
static __always_inline real reno_increase(struct tcp_sock *tp, real acked)
{
	return real_divide(acked, window_real(tp));
}

/*
 * Linux 6.18 once went on with a window of 120 295 895 packets, and once with a threshold of 2 165 326 104, by the look of them
 * what lay on its stack, as if it had not run the program that it asked; why is not known. What follows takes back what no
 * program can have said. Twice the window and some packets are allowed, by which the kernel itself may go beyond it for a moment.
 */
#define DOUBTFUL(value, known) ((value) > 2 * (__u64)(known) + 16)

/* The threshold, once the kernel has asked for it: Reno's in place of one that is far above the window before. */
static __always_inline void doubt_ssthresh(struct tcp_sock *tp, __u64 min_ssthresh)
{
	struct window *window = state(tp);

	if (tp->snd_ssthresh == window->told_ssthresh || tp->snd_ssthresh == TCP_INFINITE_SSTHRESH ||
	    !DOUBTFUL(tp->snd_ssthresh, tp->prior_cwnd))
		return;
	window->told_ssthresh = max(tp->prior_cwnd / 2, min_ssthresh);
	tp->snd_ssthresh = window->told_ssthresh;
}

/* The window, of which the kernel has it that a reduction was wrong: that before it in place of one far above. */
static __always_inline void doubt_window(struct tcp_sock *tp)
{
	struct window *window = state(tp);
	__u32 most = max(max(window->left_cwnd, tp->prior_cwnd), window->told_ssthresh);

	/* The answer to a SYN is acknowledged before init, which begins anew. */
	if (!window->begun || !DOUBTFUL(tp->snd_cwnd, most))
		return;
	tp->snd_cwnd = max(most, 1);
}

/* The acknowledgment at hand has been dealt with. */
static __always_inline void leave_window(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->left_cwnd = tp->snd_cwnd;
}

/* A loss leaves so many 2^-20 packets, or min_ssthresh. Returns ssthresh as the kernel wants it. */
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
	window->told_ssthresh = fixed >> FRACTION_BITS;
	return window->told_ssthresh;
}

/* The kernel has just set the window to whole packets after a timeout, which leaves no fraction. */
static __always_inline void enter_loss(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->fraction = 0;
}

/*
 * After an idle time the kernel halves whole packets, and its threshold is three quarters of them at least
 * (tcp_cwnd_restart in Linux). It does so after this, and knows nothing of fractions.
 */
static __always_inline void restart_window(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->fraction = 0;
	window->ssthresh_fraction = 0;
}

/* Nothing had been lost: the kernel takes back ssthresh, but for its fraction. */
static __always_inline __u32 undo(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->fraction = window->fraction_before;
	window->ssthresh_fraction = 0;
	return max(tp->snd_cwnd, tp->prior_cwnd);
}

/* How many packets this acknowledgment is the first to acknowledge, selectively or not; asked once for each. */
static __always_inline __u32 newly_delivered(struct tcp_sock *tp)
{
	struct window *window = state(tp);
	__u32 acked = tp->delivered - window->delivered;

	window->delivered = tp->delivered;
	return acked;
}

/* What the acknowledgment at hand has measured, 0 without a sample. */
static __always_inline __u32 sample_us(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	return window->sampled ? window->last_rtt_us : 0;
}

/* Keeps what an acknowledgment of so many packets has measured. */
static __always_inline void measure(struct tcp_sock *tp, __u32 acked, const struct ack_sample *sample)
{
	struct window *window = state(tp);
	__s32 rtt_us = sample->rtt_us;

	window->since_last += min(acked, ~0u - window->since_last);
	window->sampled = rtt_us >= 0;
	if (rtt_us < 0)
		return;
	/* A sample of less than a microsecond is one of a microsecond: 0 means that there is none. */
	rtt_us = max(rtt_us, 1);
	window->last_rtt_us = rtt_us;
	if (window->min_rtt_us == 0 || (__u32)rtt_us < window->min_rtt_us)
		window->min_rtt_us = rtt_us;
}

#endif
