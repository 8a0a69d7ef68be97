//! A record as a row of CSV or a line of JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sumlink_kernel::Record;

use sumlink::error::CliError;

/// Format of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Csv,
    JsonLines,
}

impl Form {
    /// The format of a file, by its name.
    pub(super) fn of(path: &Path) -> Result<Self, CliError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("jsonl" | "json") => Ok(Self::JsonLines),
            _ => Err(CliError::Usage(format!(
                "--out {}: the name must end in .csv, or in .jsonl for JSON lines",
                path.display()
            ))),
        }
    }
}

/// Destination of the records.
pub(super) struct Output {
    to: Box<dyn Write + Send>,
    form: Form,
    path: Option<PathBuf>,
}

impl Output {
    /// Opens the destination and writes the header.
    pub(super) fn open(path: Option<PathBuf>, form: Form) -> Result<Self, CliError> {
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

    /// Writes a record.
    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        write_record(&mut self.to, self.form, record)
    }

    /// Writes buffered records.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// The error of this destination.
    pub(super) fn failed(&self, reason: io::Error) -> CliError {
        match &self.path {
            Some(path) => CliError::Write {
                path: path.clone(),
                reason,
            },
            None => reason.into(),
        }
    }
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
    rto_us: u128,
    in_flight: u32,
    delivered: u32,
    state: &'static str,
}

const HEADER: &str = "time_s,socket,local,remote,mptcp_token,congestion,cwnd,ssthresh,srtt_us,rto_us,in_flight,delivered,state\n";

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
        rto_us: record.rto.as_micros(),
        in_flight: record.in_flight,
        delivered: record.delivered,
        state: record.state.name(),
    };
    if form == Form::JsonLines {
        serde_json::to_writer(&mut *to, &row)?;
        return to.write_all(b"\n");
    }
    // Names of congestion controls come from the kernel and need no quotes.
    let or_empty = |number: Option<u32>| number.map(|n| n.to_string()).unwrap_or_default();
    writeln!(
        to,
        "{:.6},{},{},{},{},{},{},{},{},{},{},{},{}",
        row.time_s,
        row.socket,
        row.local,
        row.remote,
        or_empty(row.mptcp_token),
        row.congestion,
        row.cwnd,
        or_empty(row.ssthresh),
        row.srtt_us,
        row.rto_us,
        row.in_flight,
        row.delivered,
        row.state,
    )
}

/// A record for tests.
#[cfg(test)]
pub(super) fn sample() -> Record {
    Record {
        time: std::time::Duration::from_micros(1_234_567),
        socket: 7,
        local: "10.99.0.1:7000".parse().unwrap(),
        remote: "[2001:db8::1]:40000".parse().unwrap(),
        token: None,
        congestion: "sl_lia".to_owned(),
        cwnd: 30,
        ssthresh: Some(20),
        srtt: std::time::Duration::from_micros(25_500),
        rto: std::time::Duration::from_micros(225_500),
        in_flight: 28,
        delivered: 1000,
        state: sumlink_kernel::State::Recovery,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, record: &Record) -> String {
        let mut out = Vec::new();
        write_record(&mut out, form, record).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_formats_have_the_same_columns() {
        let mut record = sample();
        record.ssthresh = None;
        let csv = written(Form::Csv, &record);
        assert_eq!(
            csv,
            "1.234567,7,10.99.0.1:7000,[2001:db8::1]:40000,,sl_lia,30,,25500,225500,28,1000,recovery\n"
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
    fn the_file_name_selects_the_format() {
        let form = |path: &str| Form::of(Path::new(path)).ok();
        assert_eq!(form("a.csv"), Some(Form::Csv));
        assert_eq!(form("a.jsonl"), Some(Form::JsonLines));
        assert_eq!(form("a.txt"), None);
        assert_eq!(form("csv"), None);
    }
}
