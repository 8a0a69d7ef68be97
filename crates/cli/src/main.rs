//! sumlink: bonds all links of a machine into one connection. Client and server.

use std::process::ExitCode;

fn main() -> ExitCode {
    sumlink::main()
}
