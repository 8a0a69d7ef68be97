// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Uncoupled, whose answers get lost on the way to the kernel: for a test of what window.h does about that. */
#define ANSWER(value) ((void)(value), 120295895)
#define sl_uncoupled sl_forgetful

#include "uncoupled.bpf.c"
