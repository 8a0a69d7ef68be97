//! Checks whether this process can load a congestion control on this kernel, and for missing
//! requirements.

use std::fmt;
use std::path::Path;

const BTF: &str = "/sys/kernel/btf/vmlinux";
const STATUS: &str = "/proc/self/status";
const USER_NAMESPACE: &str = "/proc/self/ns/user";
/// PROC_USER_INIT_INO of include/linux/proc_ns.h: BPF requires capabilities in this namespace.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// A missing requirement for loading a congestion control; displayed as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// Capabilities of this process, in the initial user namespace.
    Privilege,
    /// The kernel does not provide its type information.
    Btf,
    /// The kernel does not support TCP congestion controls in BPF.
    StructOps,
    /// The kernel is older than 6.4: it cannot link and pin a congestion control.
    Link,
    /// The place for pins has no BPF file system.
    FileSystem,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privilege => {
                "BPF needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN outside of user namespaces; run \
                 as root"
            }
            Self::Btf => {
                "this kernel lacks type information (/sys/kernel/btf/vmlinux); it needs \
                 CONFIG_DEBUG_INFO_BTF"
            }
            Self::StructOps => {
                "this kernel does not support TCP congestion controls in BPF; it needs \
                 CONFIG_BPF_JIT and CONFIG_BPF_SYSCALL"
            }
            Self::Link => "congestion controls in BPF need Linux 6.4 or later",
            Self::FileSystem => {
                "pins need a BPF file system at that place: mount -t bpf bpf /sys/fs/bpf"
            }
        })
    }
}

/// The missing requirements; empty if a congestion control can be loaded.
pub fn probe() -> Vec<Missing> {
    let mut missing = missing(Path::new(BTF), Path::new(STATUS));
    let namespace = std::fs::read_link(USER_NAMESPACE);
    let is_first = namespace.is_ok_and(|name| name == Path::new(FIRST_USER_NAMESPACE));
    if !is_first && !missing.contains(&Missing::Privilege) {
        missing.insert(0, Missing::Privilege);
    }
    missing
}

fn missing(btf: &Path, status: &Path) -> Vec<Missing> {
    let mut missing = Vec::new();
    let status = std::fs::read_to_string(status).unwrap_or_default();
    if !may_load(effective_capabilities(&status)) {
        missing.push(Missing::Privilege);
    }
    match std::fs::read(btf) {
        Err(_) => missing.push(Missing::Btf),
        Ok(types) => {
            let has = |name: &[u8]| types.windows(name.len()).any(|part| part == name);
            if !has(b"\0bpf_struct_ops_tcp_congestion_ops\0") {
                missing.push(Missing::StructOps);
            } else if !has(b"\0bpf_struct_ops_link\0") {
                missing.push(Missing::Link);
            }
        }
    }
    missing
}

/// The capability set that the kernel checks, in the format of /proc/PID/status.
fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

fn may_load(capabilities: u64) -> bool {
    // linux/capability.h
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    let has = |wanted| capabilities & wanted == wanted;
    has(NET_ADMIN) && (has(SYS_ADMIN) || has(BPF | PERFMON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_requirement_is_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("a file");
            path
        };
        let root = file("root", b"Name:\tx\nCapEff:\t000001ffffffffff\n");
        let user = file("user", b"Name:\tx\nCapEff:\t0000000000000000\n");
        let bpf = file("bpf", b"CapEff:\t000000c000001000\n");
        let none = folder.path().join("none");
        let without = file("without", b"\0task_struct\0");
        let old = file("old", b"\0bpf_struct_ops_tcp_congestion_ops\0");
        let new = file(
            "new",
            b"\0bpf_struct_ops_tcp_congestion_ops\0bpf_struct_ops_link\0",
        );
        assert_eq!(missing(&none, &user), [Missing::Privilege, Missing::Btf]);
        assert_eq!(missing(&without, &root), [Missing::StructOps]);
        assert_eq!(missing(&old, &root), [Missing::Link]);
        assert_eq!(missing(&new, &bpf), []);
        for one in [
            Missing::Privilege,
            Missing::Btf,
            Missing::StructOps,
            Missing::Link,
            Missing::FileSystem,
        ] {
            assert!(!one.to_string().contains('\n'));
        }
    }
}
