//! The output of libbpf.

use std::cell::RefCell;

use libbpf_rs::{PrintLevel, set_print};

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a call into libbpf, which otherwise prints to standard error, and returns its output.
/// libbpf logs on the calling thread, so output of other threads is not mixed in.
pub(crate) fn capture_log<R>(call: impl FnOnce() -> R) -> (R, String) {
    fn keep(_: PrintLevel, text: String) {
        LOG.with_borrow_mut(|log| log.push_str(&text));
    }
    set_print(Some((PrintLevel::Warn, keep)));
    LOG.take();
    let result = call();
    (result, LOG.take())
}
