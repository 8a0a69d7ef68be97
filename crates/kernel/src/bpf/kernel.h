/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The parts of the kernel's structures that the programs use. Offsets are relocated when a program
 * is loaded (CO-RE), so the order and the other fields of the real structures do not matter.
 */
#ifndef SUMLINK_KERNEL_H
#define SUMLINK_KERNEL_H

#include <stdbool.h>

/*
 * In place of linux/types.h and linux/bpf.h, whose location and dependencies differ between
 * distributions.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_NOEXIST 1
#define BPF_EXIST 2
#define BPF_SK_STORAGE_GET_F_CREATE 1

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {};

struct inet_connection_sock {
	__u8 icsk_ca_state : 5;
	void *icsk_ulp_data;
	__u64 icsk_ca_priv[13]; /* ICSK_CA_PRIV_SIZE */
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 delivered; /* packets delivered since the beginning, cumulatively or selectively */
	__u32 max_packets_out;
	__u32 prior_cwnd;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_nxt;
	__u32 snd_ssthresh;
	__u32 snd_una;
	__u32 srtt_us; /* times eight */
	__u64 tcp_mstamp; /* microseconds, arrival of the last packet */
	__u8 is_cwnd_limited : 1;
	__u8 is_mptcp : 1;
};

struct mptcp_subflow_context {
	__u32 token;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us; /* negative without a sample */
};

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, __u32 event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	char name[16];
	__u32 flags;
};

#pragma clang attribute pop

/* include/net/inet_connection_sock.h */
#define ICSK_CA_PRIV_SIZE 104

/* include/net/tcp.h */
#define TCP_CONG_NON_RESTRICTED 1
#define TCP_INFINITE_SSTHRESH 0x7fffffff

/* include/uapi/linux/tcp.h */
#define TCP_CA_Open 0
#define TCP_CA_Disorder 1
#define TCP_CA_CWR 2
#define TCP_CA_Loss 4

/* include/net/tcp.h: enum tcp_ca_event */
#define CA_EVENT_TX_START 0
#define CA_EVENT_CWND_RESTART 1

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

/* The kernel allows only programs of a compatible license to modify a socket. */
char _license[] SEC("license") = "Dual MIT/GPL";

#endif
