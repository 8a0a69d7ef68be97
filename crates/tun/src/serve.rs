//! A device in service.

use std::future::Future;
use std::io;
use std::sync::Arc;

use sumlink_proxy::{ClassRule, DatagramOpener, Opener};
use tracing::info;

use crate::device::{Device, Limits};
use crate::stack::Stack;

/// Serves the device over `opener` until `shutdown` completes; then it resets new connections and
/// returns when the open ones have ended. `classes` are applied as by the other entries.
///
/// Dropping the future removes the device and resets the connections. To limit the time for the
/// remaining connections, wrap the future in a [`tokio::time::timeout`].
///
/// # Errors
///
/// The device is gone, for instance because it was deleted.
pub async fn serve<O: Opener + DatagramOpener>(
    device: Device,
    opener: O,
    limits: Limits,
    classes: Arc<[ClassRule]>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let name = device.name().to_owned();
    let served = Stack::new(device, opener, limits, classes)
        .run(shutdown)
        .await;
    info!(device = %name, "TUN device is no longer served");
    served
}
