//! `sumlink cc trace`: what windows do, for every acknowledgement, as CSV, as JSON lines and as a picture.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use sumlink_kernel::{Filter, Record, Trace};
use sumlink_lab::{WindowFlow, WindowPoint, draw_windows};

use crate::exit::CliError;
use crate::output::print_json;
use crate::signals::Stop;

/// Points of one flow that are kept for the picture; of more, each second one is dropped again and again.
const MOST_POINTS: usize = 1 << 18;

/// `sumlink cc trace`
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

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Csv,
    JsonLines,
}

/// A record as a row.
#[derive(Debug, Serialize)]
struct Row<'a> {
    time_s: f64,
    socket: u64,
    local: String,
    remote: String,
    mptcp_token: Option<u32>,
    congestion: &'a str,
    cwnd: u32,
    ssthresh: Option<u32>,
    srtt_us: u128,
    in_flight: u32,
    state: &'static str,
}

const HEADER: &str =
    "time_s,socket,local,remote,mptcp_token,congestion,cwnd,ssthresh,srtt_us,in_flight,state\n";

/// What there was at the end.
#[derive(Debug, Default)]
struct Account {
    records: u64,
    flows: BTreeMap<u64, Flow>,
}

/// One connection.
#[derive(Debug)]
struct Flow {
    name: String,
    points: Vec<WindowPoint>,
    /// Records for each point that is kept.
    every: u64,
    seen: u64,
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
        Some(path) => form_of(path)?,
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
        (Some(path), true) => Some(draw(path, &account)?),
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
            let flushed = out.to.flush();
            flushed.map_err(|error| out.failed(error))?;
            Ok((account, trace.lost()))
        }
    }
}

fn process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn form_of(path: &Path) -> Result<Form, CliError> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Ok(Form::Csv),
        Some("jsonl" | "json") => Ok(Form::JsonLines),
        _ => Err(CliError::Usage(format!(
            "--out {}: the ending says the form: .csv, or .jsonl for JSON lines",
            path.display()
        ))),
    }
}

/// Where records go.
struct Output {
    to: Box<dyn Write + Send>,
    form: Form,
    path: Option<PathBuf>,
}

impl Output {
    fn open(path: Option<PathBuf>, form: Form) -> Result<Self, CliError> {
        let to: Box<dyn Write + Send> = match &path {
            None => Box::new(BufWriter::new(io::stdout())),
            Some(path) => match File::create(path) {
                Ok(file) => Box::new(BufWriter::new(file)),
                Err(reason) => {
                    let path = path.clone();
                    return Err(CliError::Write { path, reason });
                }
            },
        };
        let mut output = Self { to, form, path };
        if form == Form::Csv
            && let Err(error) = output.to.write_all(HEADER.as_bytes())
        {
            return Err(output.failed(error));
        }
        Ok(output)
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        write_record(&mut self.to, self.form, record)
    }

    fn failed(&self, reason: io::Error) -> CliError {
        match &self.path {
            Some(path) => CliError::Write {
                path: path.clone(),
                reason,
            },
            None => reason.into(),
        }
    }
}

fn write_record(to: &mut dyn Write, form: Form, record: &Record) -> io::Result<()> {
    let row = Row {
        time_s: record.time.as_nanos() as f64 / 1e9,
        socket: record.socket,
        local: record.local.to_string(),
        remote: record.remote.to_string(),
        mptcp_token: record.token,
        congestion: &record.congestion,
        cwnd: record.cwnd,
        ssthresh: record.ssthresh,
        srtt_us: record.srtt.as_micros(),
        in_flight: record.in_flight,
        state: record.state.name(),
    };
    if form == Form::JsonLines {
        serde_json::to_writer(&mut *to, &row)?;
        return to.write_all(b"\n");
    }
    // Nothing in them needs quotes: names of congestion controls are the kernel's.
    let or_empty = |number: Option<u32>| number.map(|n| n.to_string()).unwrap_or_default();
    writeln!(
        to,
        "{:.6},{},{},{},{},{},{},{},{},{},{}",
        row.time_s,
        row.socket,
        row.local,
        row.remote,
        or_empty(row.mptcp_token),
        row.congestion,
        row.cwnd,
        or_empty(row.ssthresh),
        row.srtt_us,
        row.in_flight,
        row.state,
    )
}

impl Account {
    fn take(&mut self, record: &Record, plot: bool) {
        self.records += 1;
        let flow = self.flows.entry(record.socket).or_insert_with(|| Flow {
            name: format!(
                "{} to {}, {}",
                record.local, record.remote, record.congestion
            ),
            points: Vec::new(),
            every: 1,
            seen: 0,
        });
        flow.seen += 1;
        if !plot || !flow.seen.is_multiple_of(flow.every) {
            return;
        }
        flow.points.push(WindowPoint {
            time: record.time.as_secs_f64(),
            cwnd: record.cwnd.into(),
            ssthresh: record.ssthresh.map(f64::from),
            srtt: record.srtt.as_secs_f64(),
        });
        if flow.points.len() >= MOST_POINTS {
            let mut keeps = false;
            flow.points.retain(|_| {
                keeps = !keeps;
                keeps
            });
            flow.every *= 2;
        }
    }
}

/// Writes the picture beside the records.
fn draw(records: &Path, account: &Account) -> Result<PathBuf, CliError> {
    let path = records.with_extension("svg");
    let flows: Vec<WindowFlow> = account
        .flows
        .values()
        .map(|flow| WindowFlow {
            name: flow.name.clone(),
            points: flow.points.clone(),
        })
        .collect();
    let title = "Congestion window, threshold and round-trip time";
    let picture = draw_windows(title, &flows);
    match std::fs::write(&path, picture) {
        Ok(()) => Ok(path),
        Err(reason) => Err(CliError::Write { path, reason }),
    }
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
    let flows = account.flows.len();
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

#[cfg(test)]
mod tests {
    use sumlink_kernel::State;

    use super::*;

    fn sample() -> Record {
        Record {
            time: Duration::from_micros(1_234_567),
            socket: 7,
            local: "10.99.0.1:7000".parse().unwrap(),
            remote: "[2001:db8::1]:40000".parse().unwrap(),
            token: None,
            congestion: "sl_lia".to_owned(),
            cwnd: 30,
            ssthresh: Some(20),
            srtt: Duration::from_micros(25_500),
            in_flight: 28,
            state: State::Recovery,
        }
    }

    fn written(form: Form, record: &Record) -> String {
        let mut out = Vec::new();
        write_record(&mut out, form, record).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_forms_have_the_same_columns() {
        let mut record = sample();
        record.ssthresh = None;
        let csv = written(Form::Csv, &record);
        assert_eq!(
            csv,
            "1.234567,7,10.99.0.1:7000,[2001:db8::1]:40000,,sl_lia,30,,25500,28,recovery\n"
        );
        let json: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&written(Form::JsonLines, &record)).unwrap();
        let columns: Vec<&str> = HEADER.trim().split(',').collect();
        assert_eq!(columns.len(), csv.trim().split(',').count());
        assert!(columns.iter().all(|column| json.contains_key(*column)));
        assert_eq!(json.len(), columns.len());
        assert_eq!(json["srtt_us"], 25_500);
    }

    #[test]
    fn the_ending_says_the_form() {
        let form = |path: &str| form_of(Path::new(path)).ok();
        assert_eq!(form("a.csv"), Some(Form::Csv));
        assert_eq!(form("a.jsonl"), Some(Form::JsonLines));
        assert_eq!(form("a.txt"), None);
        assert_eq!(form("csv"), None);
    }

    #[test]
    fn pictures_of_long_traces_take_bounded_memory() {
        let mut account = Account::default();
        let record = sample();
        for _ in 0..3 * MOST_POINTS {
            account.take(&record, true);
        }
        let flow = &account.flows[&7];
        assert!(flow.points.len() < MOST_POINTS);
        assert!(flow.points.len() > MOST_POINTS / 4);
        assert_eq!(account.records, 3 * MOST_POINTS as u64);
    }
}
