// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Only the maps that all algorithms share. */
#include "siblings.h"
