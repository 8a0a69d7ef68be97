//! `sumlink link`: what a link of a running client may be used for.

mod policy;

use clap::Args;

use crate::exit::CliError;
use policy::PolicyArgs;
pub(crate) use policy::read_beyond;

/// `sumlink link`
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    policy: PolicyArgs,
}

impl LinkArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        self.policy.json
    }
}

/// Runs the verb.
pub(crate) fn run(args: &LinkArgs) -> Result<(), CliError> {
    policy::run(&args.policy)
}
