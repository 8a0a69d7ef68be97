// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Uncoupled, with answers that do not reach the kernel, to test the reaction of window.h. */
#define ANSWER(value) ((void)(value), 120295895)
#define sl_uncoupled sl_forgetful

#include "uncoupled.bpf.c"
