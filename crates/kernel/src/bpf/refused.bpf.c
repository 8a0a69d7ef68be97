// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Not a congestion control: reads beyond a map's value, to test the report of a rejection. */
#include "twin.h"

SETTINGS();

SEC("struct_ops")
__u32 BPF_PROG(sl_refused, struct sock *sk)
{
	__u64 *group = bpf_sk_storage_get(&sl_groups, sk, 0, 0);

	return group ? group[1] : 1;
}

SEC("struct_ops")
void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp_sock(sk);

	grow(tp, reno_increase(tp, slow_start(tp, acked, settings.max_cwnd)), settings.max_cwnd);
}

SEC("struct_ops")
__u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	return undo(tcp_sock(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops refused = {
	.cong_avoid = (void *)cong_avoid,
	.ssthresh = (void *)sl_refused,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "sl_refused",
};
