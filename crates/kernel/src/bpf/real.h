/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Nonnegative real numbers, because eBPF has no floating point.
 *
 * A real is a 32-bit mantissa with its highest bit set, times a power of two; zero is 0. The
 * exponent is above the mantissa, so reals compare like integers. Every operation rounds down, by
 * less than 2^-31 of its result. Exponents are kept within +-4095, far more than windows, times and
 * their squares need.
 *
 * The operations are global functions, so the kernel verifies each of them once instead of at every
 * call.
 */
#ifndef SUMLINK_REAL_H
#define SUMLINK_REAL_H

#include "kernel.h"

typedef __u64 real;

#define REAL_BIAS 8192

static __always_inline __u64 real_mantissa(real a)
{
	return (__u32)a;
}

static __always_inline __s64 real_exponent(real a)
{
	return (__s64)(a >> 32) - REAL_BIAS;
}

/* The real mantissa * 2^exponent. */
__attribute__((noinline)) __u64 real_make(__u64 mantissa, __s64 exponent)
{
	__u64 rest = mantissa;
	__u32 bits = 0;

	if (mantissa == 0)
		return 0;
	if (rest >> 32) {
		rest >>= 32;
		bits += 32;
	}
	if (rest >> 16) {
		rest >>= 16;
		bits += 16;
	}
	if (rest >> 8) {
		rest >>= 8;
		bits += 8;
	}
	if (rest >> 4) {
		rest >>= 4;
		bits += 4;
	}
	if (rest >> 2) {
		rest >>= 2;
		bits += 2;
	}
	bits += 1 + (rest >> 1);
	if (bits > 32)
		mantissa >>= bits - 32;
	else
		mantissa <<= 32 - bits;
	exponent += (__s64)bits - 32;
	if (exponent < -4095)
		return 0;
	if (exponent > 4095)
		exponent = 4095;
	return (__u64)(exponent + REAL_BIAS) << 32 | (__u32)mantissa;
}

static __always_inline real real_of(__u64 number)
{
	return real_make(number, 0);
}

__attribute__((noinline)) __u64 real_multiply(__u64 a, __u64 b)
{
	return real_make(real_mantissa(a) * real_mantissa(b), real_exponent(a) + real_exponent(b));
}

/* a / b; 0 if b is 0. */
__attribute__((noinline)) __u64 real_divide(__u64 a, __u64 b)
{
	if (b == 0)
		return 0;
	/* The quotient of two mantissas has at least 32 bits. */
	return real_make((real_mantissa(a) << 32) / real_mantissa(b),
			 real_exponent(a) - 32 - real_exponent(b));
}

__attribute__((noinline)) __u64 real_add(__u64 a, __u64 b)
{
	__u64 large = max(a, b), small = min(a, b);
	__s64 shift = real_exponent(large) - real_exponent(small);

	if (small == 0 || shift < 0 || shift > 62)
		return large;
	return real_make((real_mantissa(large) << 31) + ((real_mantissa(small) << 31) >> shift),
			 real_exponent(large) - 31);
}

/* a * 2^bits as an integer, rounded down; at most 2^62. */
__attribute__((noinline)) __u64 real_fixed(__u64 a, __s64 bits)
{
	__s64 shift = real_exponent(a) + bits;

	if (a == 0 || shift <= -32)
		return 0;
	if (shift <= 0)
		return real_mantissa(a) >> -shift;
	if (shift > 30)
		return 1ull << 62;
	return real_mantissa(a) << shift;
}

#endif
