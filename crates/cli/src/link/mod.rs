//! `sumlink link`: what a link of a running client may be used for, and several links of one card.

mod policy;
mod split;

use clap::{Args, Subcommand};

use crate::exit::CliError;
use policy::PolicyArgs;
pub(crate) use policy::read_beyond;
use split::{JoinArgs, SplitArgs};

/// `sumlink link`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    policy: Option<PolicyArgs>,
    #[command(subcommand)]
    command: Option<LinkCommand>,
}

/// What needs no running client.
#[derive(Debug, Subcommand)]
enum LinkCommand {
    /// Make several interfaces of one card, each of which can be a link: stations of Wi-Fi, or macvlan
    Split(SplitArgs),
    /// Remove what split has made
    Join(JoinArgs),
}

impl LinkArgs {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Some(LinkCommand::Split(args)) => args.json,
            Some(LinkCommand::Join(args)) => args.json,
            None => self.policy.as_ref().is_some_and(|policy| policy.json),
        }
    }
}

/// Runs the verb.
pub(crate) fn run(args: &LinkArgs) -> Result<(), CliError> {
    match (&args.command, &args.policy) {
        (Some(LinkCommand::Split(args)), _) => split::split(args),
        (Some(LinkCommand::Join(args)), _) => split::join(args),
        (None, Some(policy)) => policy::run(policy),
        // The command line asks for one of the two.
        (None, None) => Err(CliError::Usage(
            "which link? sumlink link --help".to_owned(),
        )),
    }
}
