//! `sumlink-lab` as a separate program, for the laboratory's tests and for development:
//! `cargo run -p sumlink-lab --example lab -- shell --link wifi:rate=60mbit -- ip address`.

#![allow(clippy::print_stderr, reason = "an example")]

use std::process::ExitCode;

use clap::Parser;
use sumlink_lab::LabCommand;

#[derive(Parser)]
#[command(name = "lab", about = "Emulated links between network namespaces")]
struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

fn main() -> ExitCode {
    match sumlink_lab::run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
