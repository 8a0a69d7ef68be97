//! The environment of a run: the machine, and the versions of all programs involved.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use ring::digest::{Context, SHA256};

use crate::results::Environment;
use crate::systems::System;
use crate::topology::SOCKET_BUFFER_MAX;

use super::job::Job;

pub(super) fn of(job: &Job<'_>, system: &dyn System) -> Environment {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Environment {
        kernel: kernel.trim().to_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        processor: model(&processors),
        sumlink: env!("CARGO_PKG_VERSION").to_owned(),
        // A missing program makes the run itself fail.
        program: digest(job.program).unwrap_or_default(),
        peers: system.versions(),
        congestion: job.scenario.congestion.clone(),
        socket_buffer_max_bytes: SOCKET_BUFFER_MAX,
        simulated: false,
    }
}

/// The name of the first processor in /proc/cpuinfo; empty if it has none, as on some
/// architectures.
fn model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    model.unwrap_or_default()
}

/// Device, inode, size and modification time: together they identify the content of a file.
type Identity = (u64, u64, u64, i64, i64);

/// The digest of the last file, cached since programs are large and read before every run. The file
/// may be rebuilt in the middle of a series.
static LAST: Mutex<Option<(Identity, String)>> = Mutex::new(None);

/// The first 16 hexadecimal digits of a file's SHA-256.
fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let of = file.metadata()?;
    let identity = (of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec());
    let mut last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((_, digest)) = last.as_ref().filter(|(known, _)| *known == identity) {
        return Ok(digest.clone());
    }
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => context.update(&buffer[..count]),
        }
    }
    let digest = context.finish();
    let bytes = digest.as_ref().iter().take(8);
    let digest: String = bytes.map(|byte| format!("{byte:02x}")).collect();
    *last = Some((identity, digest.clone()));
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_identified_by_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            digest(&path).unwrap()
        };
        // FIPS 180-2, appendix B.1.
        assert_eq!(of(b"abc"), "ba7816bf8f01cfea");
        assert_eq!(digest(&path).unwrap(), "ba7816bf8f01cfea");
        assert_ne!(of(b"abcd"), "ba7816bf8f01cfea");
        assert!(digest(&directory.path().join("none")).is_err());
    }

    #[test]
    fn processors_have_a_name() {
        let text = "processor\t: 0\nmodel name\t: Some (R) Chip\nprocessor\t: 1\nmodel name\t: x\n";
        assert_eq!(model(text), "Some (R) Chip");
        assert_eq!(model("processor : 0\n"), "");
    }
}
