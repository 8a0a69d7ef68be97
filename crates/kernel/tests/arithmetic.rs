//! The arithmetic of the kernel programs, run in the kernel, against floating point.
//!
//! Like `loopback.rs` it needs root, unless `SUMLINK_SKIP_BPF=1` is set.

#![allow(clippy::print_stderr, reason = "a test")]

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/arithmetic.bpf.o"));

/// Relative error by which an operation may round down.
const ERROR: f64 = 1.0 / (1u64 << 31) as f64;

/// Mantissa and exponent.
type Number = (u64, i64);

struct Arithmetic(Object);

impl Arithmetic {
    fn load() -> Self {
        let object = ObjectBuilder::default()
            .open_memory(OBJECT)
            .expect("an object");
        Self(
            object
                .load()
                .expect("loads: set SUMLINK_SKIP_BPF=1 to leave this test out"),
        )
    }

    fn raw(&self, operation: char, a: Number, b: Number) -> u64 {
        let words = [operation as u64, a.0, a.1 as u64, b.0, b.1 as u64, 0];
        let mut context: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let program = self.0.progs_mut().next().expect("a program");
        let input = ProgramInput {
            context_in: Some(&mut context),
            ..ProgramInput::default()
        };
        program.test_run(input).expect("runs");
        u64::from_ne_bytes(context[40..].try_into().expect("eight bytes"))
    }

    fn calculate(&self, operation: char, a: Number, b: Number) -> f64 {
        let result = self.raw(operation, a, b);
        if result == 0 {
            return 0.0;
        }
        let (mantissa, exponent) = (result as u32, (result >> 32) as i32 - 8192);
        assert!(mantissa >= 1 << 31, "the highest bit of a mantissa is set");
        f64::from(mantissa) * 2f64.powi(exponent)
    }
}

fn value((mantissa, exponent): Number) -> f64 {
    mantissa as f64 * 2f64.powi(exponent as i32)
}

/// Numbers of all lengths, with few and with many bits set.
fn numbers() -> Vec<Number> {
    let mut all = vec![(0, 0)];
    for bits in [1, 2, 7, 20, 31, 32, 33, 44, 53] {
        for pattern in [
            u64::MAX,
            1 << 63,
            0xAAAA_AAAA_AAAA_AAAA,
            0x9E37_79B9_7F4A_7C15,
        ] {
            let mantissa = pattern >> (64 - bits);
            all.extend([-60, -20, 0, 13].map(|exponent| (mantissa, exponent)));
        }
    }
    all
}

#[test]
fn every_operation_rounds_down_within_its_bound() {
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_BPF=1");
        return;
    }
    let arithmetic = Arithmetic::load();
    // The operands of binary operations are rounded first, and the rounded values are used.
    let rounded = |number| arithmetic.calculate('=', number, (0, 0));
    let holds = |found: f64, exact: f64, what: &dyn Fn() -> String| {
        // f64 has 53 bits: its own rounding is far below the required precision.
        let slack = exact * 1e-15;
        assert!(
            found <= exact + slack && found >= exact * (1.0 - ERROR) - slack,
            "{} = {found:e}, not {exact:e}",
            what()
        );
    };
    let numbers = numbers();
    for &a in &numbers {
        let x = rounded(a);
        holds(x, value(a), &|| format!("{a:?}"));
        let whole = arithmetic.raw('.', a, (0, 20)) as f64;
        let exact = (x * f64::from(1 << 20)).min(2f64.powi(62));
        assert!(
            whole <= exact && whole > exact - 1.0 - exact * 1e-15,
            "{a:?}: {whole} of {exact}"
        );
        for &b in numbers.iter().step_by(3) {
            let y = rounded(b);
            let of = |operation| arithmetic.calculate(operation, a, b);
            holds(of('+'), x + y, &|| format!("{x:e} + {y:e}"));
            holds(of('*'), x * y, &|| format!("{x:e} * {y:e}"));
            let quotient = if y == 0.0 { 0.0 } else { x / y };
            holds(of('/'), quotient, &|| format!("{x:e} / {y:e}"));
        }
    }
}
