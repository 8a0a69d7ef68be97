//! Compiles each `src/bpf/*.bpf.c` with clang and strips the debug sections.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let sources = Path::new("src/bpf");
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=LLVM_STRIP");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Set by the build script of libbpf-sys.
    let libbpf = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    for entry in fs::read_dir(sources).expect("the folder of the programs") {
        let source = entry.expect("an entry of that folder").path();
        let name = source.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(|name| name.strip_suffix(".bpf.c")) else {
            continue;
        };
        let object = out.join(name).with_extension("bpf.o");
        let status = Command::new(&clang)
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c"])
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .arg("-I")
            .arg(&libbpf)
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .status();
        match status {
            Ok(status) if status.success() => strip(&object),
            Ok(status) => panic!("clang could not compile {}: {status}", source.display()),
            Err(error) => panic!(
                "clang is needed for the kernel's congestion controls and does not start: {error}; \
                 install it (Debian: clang), or set CLANG"
            ),
        }
    }
}

/// Strips the debug sections (DWARF), which are most of an object; BTF stays, because libbpf reads
/// it. The programs are the same with them, so a missing llvm-strip is only a warning.
fn strip(object: &Path) {
    let strip = env::var_os("LLVM_STRIP").unwrap_or_else(|| "llvm-strip".into());
    // libbpf does not need the relocations of the sections that it reads itself.
    let status = Command::new(&strip)
        .args(["--strip-debug", "--remove-section=.rel.BTF.ext"])
        .arg(object)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        println!(
            "cargo:warning={} does not work; {} keeps its debug sections (install llvm or set \
             LLVM_STRIP)",
            strip.display(),
            object.file_name().unwrap_or_default().display()
        );
    }
}
