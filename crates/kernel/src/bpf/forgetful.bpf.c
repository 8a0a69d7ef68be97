// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Uncoupled, whose answers get lost on the way to the kernel: for a test of what window.h does about that. */
#define ANSWER(value) ((void)(value), 120295895)

#include "twin.h"

SETTINGS();

static __always_inline real increase(struct tcp_sock *tp, real acked)
{
	return reno_increase(tp, acked);
}

static __always_inline __u64 after_loss(struct tcp_sock *tp)
{
	return window_fixed(tp) / 2;
}

TWIN(sl_forgetful);
