//! Collects the records of the flows' receivers.

use std::thread;
use std::time::Duration;

use crate::error::LabError;
use crate::process::Process;
use crate::results::FlowRecord;
use crate::scenario::Workload;
use crate::signals;
use crate::traffic::now_ns;

use super::{MAX_SLEEP, Phase};

/// Time for the clients to exit after the run.
const TAIL: Duration = Duration::from_secs(5);

impl Phase<'_> {
    /// Collects the records of the flows' receivers.
    pub(super) fn collect(&mut self, clients: &mut [Process]) -> Result<Vec<FlowRecord>, LabError> {
        if matches!(
            self.scenario.workload,
            Workload::Command { .. } | Workload::Video(_)
        ) {
            return Ok(Vec::new());
        }
        let mut records: Vec<FlowRecord> = Vec::new();
        for client in clients {
            let text = wait_for_end(client)?;
            records.extend(
                parse_records(&text)
                    .ok_or_else(|| client.failed("printed unreadable records".to_owned()))?,
            );
        }
        // Uploads are counted by the server, which ends them by its own clock a moment later.
        let uploads = |record: &FlowRecord| record.flow % 2 == 1 && record.connected;
        let expected = records.iter().filter(|record| uploads(record)).count();
        let is_stream = !matches!(self.scenario.workload, Workload::Files { .. });
        let start = now_ns();
        let counted = loop {
            let counted = parse_lines(&self.server.output()?);
            let flows: std::collections::HashSet<_> = counted.iter().map(|r| r.flow).collect();
            let late = now_ns().saturating_sub(start) > TAIL.as_nanos() as u64;
            if !is_stream || flows.len() >= expected || late {
                break counted;
            }
            signals::check()?;
            thread::sleep(MAX_SLEEP);
        };
        for record in records.iter_mut().filter(|record| uploads(record)) {
            merge_upload(record, &counted);
        }
        Ok(records)
    }
}

/// Waits until a program exits, which it must do on its own, and returns its output.
fn wait_for_end(client: &mut Process) -> Result<String, LabError> {
    let start = now_ns();
    loop {
        match client.status()? {
            Some(status) if status.success() => return client.output(),
            Some(status) => return Err(client.failed(format!("failed ({status})"))),
            None if now_ns().saturating_sub(start) > TAIL.as_nanos() as u64 => {
                return Err(client.failed("did not exit".to_owned()));
            }
            None => {}
        }
        signals::check()?;
        thread::sleep(MAX_SLEEP.min(Duration::from_millis(10)));
    }
}

/// Parses the records that a client prints at its end; preceding lines are logs of its library.
fn parse_records(text: &str) -> Option<Vec<FlowRecord>> {
    serde_json::from_str(text.trim().lines().last()?).ok()
}

/// Parses the server's records; other lines are error messages.
fn parse_lines(text: &str) -> Vec<FlowRecord> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Replaces an upload's figures by those counted at the server, over all its connections.
fn merge_upload(record: &mut FlowRecord, counted: &[FlowRecord]) {
    let mut seen = false;
    for server in counted.iter().filter(|server| server.flow == record.flow) {
        seen = true;
        for (counts, counted) in [
            (&mut record.buckets, &server.buckets),
            (&mut record.arrivals, &server.arrivals),
        ] {
            counts.resize(counts.len().max(counted.len()), 0);
            for (count, bytes) in counts.iter_mut().zip(counted) {
                *count += bytes;
            }
        }
        record.messages.extend(&server.messages);
        if server.datagrams.is_some() {
            record.datagrams.clone_from(&server.datagrams);
        }
        record.error = record.error.take().or_else(|| server.error.clone());
    }
    if !seen {
        record.connected = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_before_the_records_are_ignored() {
        assert_eq!(parse_records("2026 INFO connected\n[]\n"), Some(Vec::new()));
        assert_eq!(parse_records("2026 INFO connected\n"), None);
        assert_eq!(parse_records(""), None);
    }

    #[test]
    fn an_upload_is_what_the_server_counted() {
        let mut record = FlowRecord {
            flow: 1,
            connected: true,
            buckets: vec![0, 0],
            ..FlowRecord::default()
        };
        let other = FlowRecord {
            buckets: vec![5, 6],
            ..record.clone()
        };
        merge_upload(&mut record, &[other.clone(), other]);
        assert_eq!(record.buckets, [10, 12]);
        merge_upload(&mut record, &[]);
        assert!(!record.connected);
    }
}
