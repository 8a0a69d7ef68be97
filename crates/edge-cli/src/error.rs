//! Failures of an edge node, with their exit codes.

use sumlink::exit::{CliError, Exit, Failure};
use sumlink_edge_node::NodeError;

use crate::metrics_server::MetricsError;

/// An edge node that could not start, or not go on; its device and its tunnels count as links.
pub(crate) fn of_node(error: NodeError) -> CliError {
    let exit = match &error {
        NodeError::Config(_) => Exit::Config,
        NodeError::System { .. } => Exit::Other,
        _ => Exit::Network,
    };
    Failure::new(exit, error).into()
}

/// An address at which metrics cannot be served.
pub(crate) fn of_metrics(error: MetricsError) -> CliError {
    Failure::new(Exit::Network, error).into()
}
