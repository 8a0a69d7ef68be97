//! `sumlink-lab cc trace`: what windows do, for every acknowledgement, as CSV, as JSON lines and as a picture.

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

use sumlink::exit::CliError;
use sumlink::output::print_json;
use sumlink::signals::Stop;

use self::flows::Account;
use self::rows::{Form, Output};

/// `sumlink-lab cc trace`
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Only connections of this process; the trace ends with it.
    #[arg(long, value_name = "PID", group = "whose", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Only connections with this port, at either end.
    #[arg(long, value_name = "PORT", group = "whose", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only subflows of MPTCP.
    #[arg(long, group = "whose")]
    mptcp: bool,
    /// Write here, as CSV (`.csv`) or JSON lines (`.jsonl`, `.json`); without it CSV on standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw the windows beside FILE, as `.svg`.
    #[arg(long, requires = "out")]
    plot: bool,
    /// End after so many seconds; without it at the first signal.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: Option<u64>,
    /// Print JSON: the records without --out, else a summary at the end.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs the verb until time, the process or a signal ends it.
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
        return Err(CliError::Usage(format!(
            "--pid {pid}: there is no such process"
        )));
    }
    // The kernel is asked first: a file is not overwritten for nothing.
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
    tell(&args, &account, lost, picture.as_deref())
}

/// Takes records until it is over; the account, and how many were lost.
fn record(
    trace: &Trace,
    mut out: Output,
    over: &AtomicBool,
    pid: Option<u32>,
    plot: bool,
) -> Result<(Account, u64), CliError> {
    let mut account = Account::default();
    let mut failed = None;
    // A reader or disk that takes no more ends it.
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

/// What was recorded; that records were lost is said in any case.
fn tell(
    args: &TraceArgs,
    account: &Account,
    lost: u64,
    picture: Option<&Path>,
) -> Result<(), CliError> {
    if lost > 0 {
        tracing::warn!(
            "{lost} records were lost: acknowledgements came faster than they could be written"
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
        "{} acknowledgements of {flows} connections, {lost} lost",
        account.records
    );
    Ok(())
}
