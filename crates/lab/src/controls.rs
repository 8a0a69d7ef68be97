//! Congestion controls that are ours: loaded for as long as a laboratory needs them.

use sumlink_kernel::{Kept, Twin, keep, probe};
use sumlink_transport::socket::{SocketError, check_congestion};

use crate::error::LabError;

/// The name by which the kernel knows a congestion control, and what keeps it loaded if it is one of ours.
pub(crate) fn prepare(name: &str) -> Result<(String, Option<Kept>), LabError> {
    let Some(twin) = ours(name) else {
        return Ok((name.to_owned(), None));
    };
    let kept = keep(twin.algorithm, None).map_err(|error| LabError::Congestion {
        name: name.to_owned(),
        reason: error.to_string(),
    })?;
    Ok((twin.system_name.to_owned(), Some(kept)))
}

/// Why one of ours cannot be used here. Whether the kernel's own can, the kernel says when it is asked for one.
pub(crate) fn missing(name: &str) -> Option<String> {
    ours(name)?;
    let missing = probe().into_iter().next()?;
    Some(format!("congestion control '{name}': {missing}"))
}

/// One of ours, unless the kernel has one of that name by itself.
fn ours(name: &str) -> Option<&'static Twin> {
    let twin = Twin::of(name).ok()?;
    let is_kernels = twin.system_name != name
        && !matches!(
            check_congestion(name),
            Err(SocketError::UnknownCongestion { .. })
        );
    (!is_kernels).then_some(twin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_needs_nothing() {
        let (name, kept) = prepare("reno").unwrap();
        assert_eq!((name.as_str(), kept.is_none()), ("reno", true));
        assert_eq!(missing("reno"), None);
        assert!(ours("lia").is_some() && ours("sl_lia").is_some());
    }
}
