// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The arithmetic of real.h, callable by tests. */
#include "real.h"

struct calculation {
	__u64 operation;
	__u64 a; /* mantissa * 2^exponent */
	__s64 a_exponent;
	__u64 b;
	__s64 b_exponent;
	__u64 result; /* in the form of real.h */
};

SEC("syscall")
int calculate(struct calculation *calculation)
{
	real a = real_make(calculation->a, calculation->a_exponent);
	real b = real_make(calculation->b, calculation->b_exponent);

	switch (calculation->operation) {
	case '+':
		calculation->result = real_add(a, b);
		break;
	case '*':
		calculation->result = real_multiply(a, b);
		break;
	case '/':
		calculation->result = real_divide(a, b);
		break;
	case '=':
		calculation->result = a;
		break;
	case '.':
		/* b_exponent is the number of binary places to keep. */
		calculation->result = real_fixed(a, calculation->b_exponent);
		break;
	}
	return 0;
}
