//! sumlink's congestion controls, loaded for the lifetime of a laboratory.

use sumlink_kernel::{Kept, Twin, keep, probe};
use sumlink_transport::socket::{SocketError, check_congestion};

use crate::error::LabError;

/// The kernel's name of a congestion control, and for one of sumlink's a handle that keeps it
/// loaded.
pub(crate) fn prepare(name: &str) -> Result<(String, Option<Kept>), LabError> {
    if let Some(reason) = settings(name) {
        return Err(LabError::Congestion {
            name: name.to_owned(),
            reason,
        });
    }
    let Some(twin) = ours(name) else {
        return Ok((name.to_owned(), None));
    };
    let kept = keep(twin.algorithm, None).map_err(|error| LabError::Congestion {
        name: name.to_owned(),
        reason: error.to_string(),
    })?;
    Ok((twin.system_name.to_owned(), Some(kept)))
}

/// Why one of sumlink's congestion controls is not available. The kernel reports missing ones of
/// its own when they are requested.
pub(crate) fn missing(name: &str) -> Option<String> {
    if let Some(reason) = settings(name) {
        return Some(format!("congestion control '{name}': {reason}"));
    }
    ours(name)?;
    let missing = probe().into_iter().next()?;
    Some(format!("congestion control '{name}': {missing}"))
}

/// Why a congestion control with settings cannot be used here.
fn settings(name: &str) -> Option<String> {
    let (base, _) = name.split_once('@')?;
    Some(format!(
        "the laboratory uses the settings with which it was loaded: load it by `sumlink cc load {base} --set \
         KEY=VALUE`, and leave out what follows the name"
    ))
}

/// sumlink's congestion control of that name, unless the kernel has one with the same name.
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
    fn controls_of_the_kernel_need_no_preparation() {
        let (name, kept) = prepare("reno").unwrap();
        assert_eq!((name.as_str(), kept.is_none()), ("reno", true));
        assert_eq!(missing("reno"), None);
        assert!(missing("whitehaul@budget=20ms").is_some_and(|reason| reason.contains("cc load")));
        assert!(ours("lia").is_some() && ours("sl_lia").is_some());
    }
}
