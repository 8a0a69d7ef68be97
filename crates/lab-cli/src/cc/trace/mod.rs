//! `sumlink-lab cc trace`: the windows at every acknowledgment, as CSV, JSON lines and a chart.

mod flows;
mod rows;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sumlink_kernel::{Filter, Trace};

use sumlink::error::CliError;
use sumlink::output::print_json;
use sumlink::signals::Stop;

use self::flows::Account;
use self::rows::{Form, Output};

/// `sumlink-lab cc trace`
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Trace only connections of this process; the trace ends with the process.
    #[arg(long, value_name = "PID", group = "filter", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Trace only connections with this port at either end.
    #[arg(long, value_name = "PORT", group = "filter", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Trace only subflows of MPTCP.
    #[arg(long, group = "filter")]
    mptcp: bool,
    /// Write to this file, as CSV (`.csv`) or JSON lines (`.jsonl`, `.json`). Default: CSV on
    /// standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw the windows to an `.svg` file beside FILE.
    #[arg(long, requires = "out")]
    plot: bool,
    /// End after this number of seconds. Default: at the first signal.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: Option<u64>,
    /// Print JSON: the records without --out, otherwise a summary at the end.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs the verb until the time, the process or a signal ends it.
pub(crate) async fn run(args: TraceArgs) -> Result<(), CliError> {
    let filter = match (args.pid, args.port, args.mptcp) {
        (Some(pid), ..) => Filter::Process(pid),
        (_, Some(port), _) => Filter::Port(port),
        (.., true) => Filter::Mptcp,
        _ => Filter::All,
    };
    let form = match &args.out {
        Some(path) => Form::of(path)?,
        None if args.json => Form::JsonLines,
        None => Form::Csv,
    };
    if let Some(pid) = args.pid
        && !process(pid).exists()
    {
        return Err(CliError::Usage(format!("--pid {pid}: no such process")));
    }
    // The trace starts before the file is opened, so that a failure does not overwrite it.
    let trace = Trace::start(filter)?;
    let out = Output::open(args.out.clone(), form)?;
    let mut stop = Stop::new()?;
    let over = Arc::new(AtomicBool::new(false));
    let (ending, pid, plot) = (Arc::clone(&over), args.pid, args.plot);
    let mut recording =
        tokio::task::spawn_blocking(move || record(&trace, out, &ending, pid, plot));
    let time = async {
        match args.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    let recorded = tokio::select! {
        recorded = &mut recording => recorded,
        name = stop.next() => {
            tracing::debug!("{name}: the trace ends");
            over.store(true, Ordering::Relaxed);
            recording.await
        }
        () = time => {
            over.store(true, Ordering::Relaxed);
            recording.await
        }
    };
    let (account, lost) = recorded.map_err(io::Error::other)??;
    let picture = match (&args.out, args.plot) {
        (Some(path), true) => Some(account.draw(path)?),
        _ => None,
    };
    print_summary(&args, &account, lost, picture.as_deref())
}

/// Takes records until the end; returns the connections and the number of lost records.
fn record(
    trace: &Trace,
    mut out: Output,
    over: &AtomicBool,
    pid: Option<u32>,
    plot: bool,
) -> Result<(Account, u64), CliError> {
    let mut account = Account::default();
    let mut failed = None;
    // A write error ends the trace.
    let broken = AtomicBool::new(false);
    trace.follow(
        |record| {
            account.take(&record, plot);
            if failed.is_none()
                && let Err(error) = out.write(&record)
            {
                failed = Some(error);
                broken.store(true, Ordering::Relaxed);
            }
        },
        || {
            !over.load(Ordering::Relaxed)
                && !broken.load(Ordering::Relaxed)
                && pid.is_none_or(|pid| process(pid).exists())
        },
    )?;
    match failed {
        Some(error) => Err(out.failed(error)),
        None => {
            let flushed = out.flush();
            flushed.map_err(|error| out.failed(error))?;
            Ok((account, trace.lost()))
        }
    }
}

fn process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Prints the summary; warns of lost records in any case.
fn print_summary(
    args: &TraceArgs,
    account: &Account,
    lost: u64,
    picture: Option<&Path>,
) -> Result<(), CliError> {
    if lost > 0 {
        tracing::warn!(
            "{lost} records lost: acknowledgments arrived faster than they could be written"
        );
    }
    let flows = account.connections();
    if args.json && args.out.is_some() {
        return print_json(&json!({
            "records": account.records,
            "connections": flows,
            "lost": lost,
            "out": args.out,
            "picture": picture,
        }));
    }
    tracing::info!(
        "{} acknowledgments of {flows} connections, {lost} lost",
        account.records
    );
    Ok(())
}
