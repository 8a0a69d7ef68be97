/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The frame of a congestion control that differs from Reno in two functions:
 *
 *     real increase(tp, acked)   growth in packets in congestion avoidance, for acked packets
 *     __u64 after_loss(tp)       window after a loss, in 2^-20 packets
 *
 * TWIN(name) makes the kernel's congestion control of that name from them. An algorithm with more
 * state per flow defines these in place of the first, and OPERATIONS(name) makes its congestion
 * control:
 *
 *     void start(sk)             a flow begins
 *     void finish(sk)            it ends, or changes its congestion control
 *     void measured(sk, n, rtt)  an acknowledgment of n packets was measured; called before all
 *                                others below; rtt in microseconds, 0 without a sample
 *     void recovered(sk)         all data sent before a loss or a timeout is acknowledged
 *     void acknowledged(sk, n)   n packets are acknowledged, and the window may grow
 *     void timed_out(sk)         the timer fired; called after after_loss
 *     void idled(sk)             no data was sent for longer than the retransmission timeout; the
 *                                window is about to shrink
 *
 * NOTHING(function) declares an empty one.
 */
#ifndef SUMLINK_TWIN_H
#define SUMLINK_TWIN_H

#include "siblings.h"

/* An answer to the kernel; a test overrides it to lose answers. */
#ifndef ANSWER
#define ANSWER(value) (value)
#endif

#define NOTHING(function)                                                                          \
	static __always_inline void function(struct sock *sk)                                      \
	{                                                                                          \
	}

#define TWIN(twin)                                                                                 \
	NOTHING(start)                                                                             \
	NOTHING(finish)                                                                            \
	NOTHING(recovered)                                                                         \
	NOTHING(timed_out)                                                                         \
	NOTHING(idled)                                                                             \
	static __always_inline void measured(struct sock *sk, __u32 acked, __u32 rtt_us)           \
	{                                                                                          \
	}                                                                                          \
	static __always_inline void acknowledged(struct sock *sk, __u32 acked)                     \
	{                                                                                          \
		struct tcp_sock *tp = tcp_sock(sk);                                                \
		struct window *window = state(tp);                                                 \
		real left;                                                                         \
                                                                                                   \
		window->acks++;                                                                    \
		left = slow_start(tp, acked, settings.max_cwnd);                                   \
		if (left)                                                                          \
			grow(tp, increase(tp, left), settings.max_cwnd);                           \
	}                                                                                          \
	OPERATIONS(twin)

#define OPERATIONS(twin)                                                                           \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(init, struct sock *sk)                                                       \
	{                                                                                          \
		begin(tcp_sock(sk));                                                               \
		start(sk);                                                                         \
		publish(sk);                                                                       \
	}                                                                                          \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(release, struct sock *sk)                                                    \
	{                                                                                          \
		finish(sk);                                                                        \
		leave(tcp_sock(sk));                                                               \
	}                                                                                          \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked)                         \
	{                                                                                          \
		check_window(tcp_sock(sk));                                                        \
		acknowledged(sk, acked);                                                           \
		leave_window(tcp_sock(sk));                                                        \
		publish(sk);                                                                       \
	}                                                                                          \
	SEC("struct_ops")                                                                          \
	__u32 BPF_PROG(ssthresh, struct sock *sk)                                                  \
	{                                                                                          \
		return ANSWER(reduce(tcp_sock(sk), after_loss(tcp_sock(sk)),                       \
				     settings.min_ssthresh));                                      \
	}                                                                                          \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(set_state, struct sock *sk, __u8 new_state)                                  \
	{                                                                                          \
		if (new_state > TCP_CA_Disorder)                                                   \
			check_ssthresh(tcp_sock(sk), settings.min_ssthresh);                       \
		if (new_state == TCP_CA_Loss) {                                                    \
			enter_loss(tcp_sock(sk));                                                  \
			timed_out(sk);                                                             \
		} else if (new_state <= TCP_CA_Disorder && repairs(tcp_sock(sk))) {                \
			recovered(sk);                                                             \
		}                                                                                  \
	}                                                                                          \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(cwnd_event, struct sock *sk, __u32 event)                                    \
	{                                                                                          \
		if (event == CA_EVENT_CWND_RESTART) {                                              \
			restart_window(tcp_sock(sk));                                              \
			idled(sk);                                                                 \
		} else if (event == CA_EVENT_TX_START) {                                           \
			/* The window may have been restarted, which no other event reports. */    \
			publish(sk);                                                               \
		}                                                                                  \
	}                                                                                          \
	SEC("struct_ops")                                                                          \
	__u32 BPF_PROG(undo_cwnd, struct sock *sk)                                                 \
	{                                                                                          \
		return ANSWER(undo(tcp_sock(sk)));                                                 \
	}                                                                                          \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(pkts_acked, struct sock *sk, const struct ack_sample *sample)                \
	{                                                                                          \
		struct tcp_sock *tp = tcp_sock(sk);                                                \
		__u32 acked = newly_delivered(tp);                                                 \
                                                                                                   \
		if (repairs(tp))                                                                   \
			check_ssthresh(tp, settings.min_ssthresh);                                 \
		check_window(tp);                                                                  \
		measure(tp, acked, sample);                                                        \
		measured(sk, acked, sample_us(tp));                                                \
		leave_window(tp);                                                                  \
		publish(sk);                                                                       \
	}                                                                                          \
	SEC(".struct_ops.link")                                                                    \
	struct tcp_congestion_ops twin = {                                                         \
		.init = (void *)init,                                                              \
		.release = (void *)release,                                                        \
		.cong_avoid = (void *)cong_avoid,                                                  \
		.ssthresh = (void *)ssthresh,                                                      \
		.set_state = (void *)set_state,                                                    \
		.cwnd_event = (void *)cwnd_event,                                                  \
		.undo_cwnd = (void *)undo_cwnd,                                                    \
		.pkts_acked = (void *)pkts_acked,                                                  \
		.name = #twin,                                                                     \
		.flags = TCP_CONG_NON_RESTRICTED,                                                  \
	}

static __always_inline void begin(struct tcp_sock *tp)
{
	struct window *window = state(tp);

	window->fraction = 0;
	window->fraction_before = 0;
	window->ssthresh_fraction = 0;
	window->min_rtt_us = 0;
	window->last_rtt_us = 0;
	window->sampled = 0;
	window->since_last = 0;
	window->last_two = 0;
	window->acks = 0;
	window->delivered = tp->delivered;
	window->answered_ssthresh = 0;
	window->last_cwnd = tp->snd_cwnd;
	window->bond = 0;
	window->place = NO_PLACE;
	window->begun = 1;
}

#endif
