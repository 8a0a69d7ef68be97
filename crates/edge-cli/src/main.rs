//! sumlink-edge: one end of an edge node.

use std::process::ExitCode;

fn main() -> ExitCode {
    sumlink_edge_cli::main()
}
