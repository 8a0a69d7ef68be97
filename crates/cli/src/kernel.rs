//! Congestion controls in the kernel, from the crate of that name.

pub(crate) use sumlink_kernel::*;
