//! Failures of an edge node and their exit codes.

use sumlink::error::{CliError, Failure};
use sumlink::exit::Exit;
use sumlink_edge_node::NodeError;

use crate::metrics_server::MetricsError;

/// Converts the failure of a node to start or continue; its device and tunnels count as links.
pub(crate) fn of_node(error: NodeError) -> CliError {
    let exit = match &error {
        NodeError::Config(_) => Exit::Config,
        NodeError::System { .. } => Exit::Other,
        _ => Exit::Network,
    };
    Failure::new(exit, error).into()
}

/// Converts the failure to serve metrics at an address.
pub(crate) fn of_metrics(error: MetricsError) -> CliError {
    Failure::new(Exit::Network, error).into()
}
