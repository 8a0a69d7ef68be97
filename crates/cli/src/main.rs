//! sumlink: one connection over every link of a machine. Client and server.

use std::process::ExitCode;

fn main() -> ExitCode {
    sumlink::main()
}
