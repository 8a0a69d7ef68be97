// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Reports the window of a TCP socket when an acknowledgment arrives, through a ring buffer. The
 * tracepoint tcp_probe runs before the socket processes it. trace.rs reads the records.
 */
#include "kernel.h"
#include <bpf/bpf_endian.h>

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_ANY 0

#define AF_INET 2
#define AF_INET6 10

#define TCP_RTO_MAX_US 120000000

/* The filter, set by user space before loading. 0 and false match everything. */
const volatile struct {
	__u32 port; /* at either end */
	__u32 mptcp; /* only subflows of MPTCP */
	__u32 process; /* only sockets that sl_owned does not exclude */
	__u32 reserved;
} wanted SEC(".rodata.wanted") = {};

/* One acknowledgment; Record in trace.rs. */
struct record {
	__u64 time_ns; /* since boot, without sleep */
	__u64 socket; /* its cookie */
	__u64 inode; /* as seen by its process; for MPTCP that of the connection */
	__u32 cwnd; /* packets */
	__u32 ssthresh; /* packets */
	__u32 srtt_us;
	__u32 in_flight; /* packets */
	__u32 token; /* of the MPTCP connection, or 0 */
	__u32 rto_us;
	__u32 delivered; /* packets since the connection began */
	__u16 family;
	__u16 local_port;
	__u16 remote_port;
	__u8 state; /* tcp_ca_state */
	__u8 reserved;
	__u8 local[16];
	__u8 remote[16];
	char algorithm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} sl_records SEC(".maps");

/* Number of dropped records. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sl_lost SEC(".maps");

/*
 * Inodes of sockets that belong to the process (1) or do not (0); user space looks up missing ones.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
} sl_owned SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common___trace {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	__u16 skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct inode {
	unsigned long i_ino;
};

struct socket {};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct sock___trace {
	struct sock_common___trace __sk_common;
	struct socket *sk_socket;
};

struct tcp_congestion_ops___trace {
	char name[16];
};

struct inet_connection_sock___trace {
	const struct tcp_congestion_ops___trace *icsk_ca_ops;
	__u8 icsk_ca_state : 5;
	__u8 icsk_backoff;
	void *icsk_ulp_data;
};

struct tcp_sock___trace {
	struct inet_connection_sock___trace inet_conn;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 srtt_us; /* times eight */
	__u32 rttvar_us; /* four mean deviations, or the minimum timeout if larger */
	__u32 delivered;
	__u8 is_mptcp : 1;
};

struct mptcp_subflow_context___trace {
	__u32 token;
	struct sock___trace *conn;
};

#pragma clang attribute pop

static __always_inline __u64 inode_of(struct sock___trace *sk)
{
	/* A socket is the first field of the structure with its inode. */
	struct socket_alloc *socket = (struct socket_alloc *)BPF_CORE_READ(sk, sk_socket);

	return socket ? BPF_CORE_READ(socket, vfs_inode.i_ino) : 0;
}

static __always_inline bool is_subflow(struct tcp_sock___trace *tp)
{
	if (!bpf_core_field_exists(tp->is_mptcp) ||
	    !bpf_core_type_exists(struct mptcp_subflow_context___trace))
		return false;
	return BPF_CORE_READ_BITFIELD_PROBED(tp, is_mptcp);
}

static __always_inline bool has_port(struct sock___trace *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_num) == wanted.port ||
	       bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport)) == wanted.port;
}

static __always_inline void addresses(struct record *record, struct sock___trace *sk)
{
	record->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	record->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	record->remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	__builtin_memset(record->local, 0, sizeof(record->local));
	__builtin_memset(record->remote, 0, sizeof(record->remote));
	if (record->family == AF_INET) {
		*(__be32 *)record->local = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		*(__be32 *)record->remote = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	} else if (record->family == AF_INET6 &&
		   bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
		BPF_CORE_READ_INTO(&record->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&record->remote, sk, __sk_common.skc_v6_daddr);
	}
}

/*
 * __tcp_set_rto() of Linux, which then counts in ticks, with the back-off after repeated timeouts.
 */
static __always_inline __u32 rto_us(struct tcp_sock___trace *tp)
{
	__u64 rto = (BPF_CORE_READ(tp, srtt_us) >> 3) + BPF_CORE_READ(tp, rttvar_us);
	__u8 backoff = BPF_CORE_READ(tp, inet_conn.icsk_backoff);

	rto <<= backoff < 16 ? backoff : 16;
	return rto < TCP_RTO_MAX_US ? rto : TCP_RTO_MAX_US;
}

static __always_inline void count_lost(void)
{
	__u32 key = 0;
	__u64 *lost = bpf_map_lookup_elem(&sl_lost, &key);

	if (lost)
		__sync_fetch_and_add(lost, 1);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(acknowledged, struct sock *probed)
{
	struct sock___trace *sk = (struct sock___trace *)probed;
	struct tcp_sock___trace *tp = (struct tcp_sock___trace *)probed;
	__u32 packets_out = BPF_CORE_READ(tp, packets_out);
	struct mptcp_subflow_context___trace *subflow = 0;
	struct record *record;
	__u64 inode = 0;
	__u8 *owned;

	/* No packet is in flight that this could acknowledge. */
	if (packets_out == 0)
		return 0;
	if (is_subflow(tp))
		subflow = BPF_CORE_READ(tp, inet_conn.icsk_ulp_data);
	else if (wanted.mptcp)
		return 0;
	if (wanted.port && !has_port(sk))
		return 0;
	if (wanted.process) {
		inode = inode_of(subflow ? BPF_CORE_READ(subflow, conn) : sk);
		if (!inode)
			return 0;
		owned = bpf_map_lookup_elem(&sl_owned, &inode);
		if (owned && !*owned)
			return 0;
	}
	record = bpf_ringbuf_reserve(&sl_records, sizeof(*record), 0);
	if (!record) {
		count_lost();
		return 0;
	}
	record->time_ns = bpf_ktime_get_ns();
	record->socket = bpf_get_socket_cookie(probed);
	record->inode = inode;
	record->cwnd = BPF_CORE_READ(tp, snd_cwnd);
	record->ssthresh = BPF_CORE_READ(tp, snd_ssthresh);
	record->srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	/* tcp_packets_in_flight() of Linux */
	record->in_flight = packets_out - BPF_CORE_READ(tp, sacked_out) -
			    BPF_CORE_READ(tp, lost_out) + BPF_CORE_READ(tp, retrans_out);
	record->rto_us = rto_us(tp);
	record->delivered = BPF_CORE_READ(tp, delivered);
	record->token = subflow ? BPF_CORE_READ(subflow, token) : 0;
	record->state = BPF_CORE_READ_BITFIELD_PROBED(tp, inet_conn.icsk_ca_state);
	record->reserved = 0;
	BPF_CORE_READ_INTO(&record->algorithm, tp, inet_conn.icsk_ca_ops, name);
	addresses(record, sk);
	bpf_ringbuf_submit(record, 0);
	return 0;
}
