// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The maps alone, which all algorithms share. */
#include "siblings.h"
