//! Errors of the device and of the echo capture.

use std::io;

use sumlink_util::plain;

/// Why a device or an echo capture cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// The device cannot be created or set up.
    #[error(transparent)]
    Device(#[from] sumlink_tun_device::DeviceError),
    /// The user's fault: the MTU is too small.
    #[error("an MTU of {0} is too small for the device; use at least {least}", least = crate::MIN_MTU)]
    Mtu(u16),
    /// The user's fault: the process lacks permission to capture echo requests.
    #[error(
        "no permission to capture echo requests on {0}; run as root, or grant CAP_NET_RAW and \
         CAP_NET_ADMIN"
    )]
    CaptureNotPermitted(String),
    /// The system's fault.
    #[error("{device}: cannot {step}: {reason}", reason = plain(.reason))]
    System {
        /// The interface.
        device: String,
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        reason: io::Error,
    },
}

impl TunError {
    pub(crate) fn system(device: &str, step: &'static str) -> impl FnOnce(io::Error) -> Self {
        let device = device.to_owned();
        move |reason| Self::System {
            device,
            step,
            reason,
        }
    }
}
