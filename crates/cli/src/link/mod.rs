//! `sumlink link`: shows and changes the policy of a client's link, and splits a card into several
//! links.

mod policy;
mod split;

use clap::{Args, Subcommand};

use crate::error::CliError;
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

/// Commands that need no running client.
#[derive(Debug, Subcommand)]
enum LinkCommand {
    /// Split a card into several interfaces that can each be a link: Wi-Fi stations or macvlan
    Split(SplitArgs),
    /// Remove the interfaces that split has made
    Join(JoinArgs),
}

impl LinkArgs {
    /// Whether `--json` was given.
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
        // clap accepts neither, so it is checked here.
        (None, None) => Err(CliError::Usage(
            "name a link; see sumlink link --help".to_owned(),
        )),
    }
}
