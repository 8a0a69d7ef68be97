/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The state that coupled algorithms share: the twin of siblings.rs.
 *
 * Sockets of one bond share a number: the group that user space has put into the socket's storage,
 * or else the token of its MPTCP connection. Each socket has a place in the bond, from 0 to
 * MAX_SIBLINGS - 1. Its entry in the map of all flows has bond and place as the key, and only that
 * socket writes it. Inserting a missing entry is atomic, so no two sockets get the same place, and
 * no lock is needed. The kernel calls release when a socket ends or changes its congestion control,
 * which removes its entry. A socket without a place sees the others and is not seen.
 */
#ifndef SUMLINK_SIBLINGS_H
#define SUMLINK_SIBLINGS_H

#include "window.h"

/* MPTCP in Linux has at most nine subflows. */
#define MAX_SIBLINGS 16
#define NO_PLACE MAX_SIBLINGS
#define MAX_FLOWS 65536

struct member {
	__u64 bond;
	__u64 place;
};

struct flow {
	__u64 window; /* in 2^-20 packets */
	__u64 longest; /* packets between losses: l in the papers on OLIA */
	__u32 srtt_us; /* 0 before the first sample: siblings then ignore this flow */
	__u32 rtt_us; /* sample of the last acknowledgment, 0 if none; for user space */
	__u64 now_us; /* time of that, or of its last start to send; for user space */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct member);
	__type(value, struct flow);
} sl_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} sl_groups SEC(".maps");

/* Distinguishes numbers of groups from tokens. */
#define IS_GROUP (1ull << 63)
#define IS_TOKEN (1ull << 62)

/* The number of the socket's bond; 0 if it has none. */
static __always_inline __u64 bond_of(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock(sk);
	__u64 *group = bpf_sk_storage_get(&sl_groups, sk, 0, 0);
	struct mptcp_subflow_context *subflow;

	if (group && *group)
		return *group | IS_GROUP;
	if (!bpf_core_field_exists(tp->is_mptcp) || !BPF_CORE_READ_BITFIELD(tp, is_mptcp) ||
	    !bpf_core_type_exists(struct mptcp_subflow_context))
		return 0;
	subflow = bpf_rdonly_cast(tp->inet_conn.icsk_ulp_data,
				  bpf_core_type_id_kernel(struct mptcp_subflow_context));
	return subflow->token ? subflow->token | IS_TOKEN : 0;
}

/* Removes the socket from its bond. */
static __always_inline void leave(struct tcp_sock *tp)
{
	struct window *window = state(tp);
	struct member member = { .bond = window->bond, .place = window->place };

	if (window->bond && window->place < MAX_SIBLINGS)
		bpf_map_delete_elem(&sl_flows, &member);
	window->bond = 0;
}

/* Finds a place for the socket in the bond. */
static __always_inline void join(struct tcp_sock *tp, __u64 bond, struct flow *own)
{
	struct window *window = state(tp);
	struct member member = { .bond = bond };
	__u32 place;

	leave(tp);
	for (place = 0; place < MAX_SIBLINGS; place++) {
		member.place = place;
		if (!bpf_map_update_elem(&sl_flows, &member, own, BPF_NOEXIST))
			break;
	}
	window->bond = bond;
	window->place = place;
}

/* Publishes the socket's state to its siblings. */
static __always_inline void publish(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sock(sk);
	struct window *window = state(tp);
	__u64 bond = bond_of(sk);
	struct member member = { .bond = bond };
	struct flow own = {
		.window = window_fixed(tp),
		.longest = max(window->since_last, window->last_two),
		.srtt_us = srtt_us(tp),
		.rtt_us = sample_us(tp),
		.now_us = tp->tcp_mstamp,
	};

	/* The SYN-ACK is acknowledged before init, which resets the state. */
	if (!window->begun)
		return;
	if (bond == 0) {
		leave(tp);
		return;
	}
	if (bond != window->bond) {
		join(tp, bond, &own);
		return;
	}
	member.place = window->place;
	if (member.place < MAX_SIBLINGS)
		bpf_map_update_elem(&sl_flows, &member, &own, BPF_EXIST);
}

/* Sums over the socket and its siblings. */
struct totals {
	__u64 flows; /* n in the papers; 0 if the socket has not been measured */
	real window; /* sum of w in packets */
	real rate; /* sum of w / rtt in packets per microsecond */
	real fastest; /* the largest w / rtt */
	real best; /* the largest w / rtt^2 */
};

static __always_inline void count_flow(struct totals *totals, const struct flow *flow)
{
	real rtt = real_of(flow->srtt_us);
	real window = real_make(flow->window, -FRACTION_BITS);
	real rate = real_divide(window, rtt);
	real quality = real_divide(rate, rtt);

	totals->flows++;
	totals->window = real_add(totals->window, window);
	totals->rate = real_add(totals->rate, rate);
	totals->fastest = max(totals->fastest, rate);
	totals->best = max(totals->best, quality);
}

/* The sibling at a place; null if it is the socket itself, or has not been measured. */
static __always_inline struct flow *sibling(struct tcp_sock *tp, __u32 place)
{
	struct window *window = state(tp);
	struct member member = { .bond = window->bond, .place = place };
	struct flow *flow;

	if (window->bond == 0 || window->place == place)
		return 0;
	flow = bpf_map_lookup_elem(&sl_flows, &member);
	return flow && flow->srtt_us ? flow : 0;
}

static __always_inline struct totals totals(struct tcp_sock *tp)
{
	struct totals totals = {};
	struct flow own = { .window = window_fixed(tp), .srtt_us = srtt_us(tp) };
	__u32 place;

	if (own.srtt_us == 0)
		return totals;
	count_flow(&totals, &own);
	for (place = 0; place < MAX_SIBLINGS; place++) {
		struct flow *flow = sibling(tp, place);

		if (flow)
			count_flow(&totals, flow);
	}
	return totals;
}

#endif
