//! A congestion control implemented by a Python class.
//!
//! The instance keeps its state in the attributes `cwnd`, `ssthresh` and `pacing_rate`, which are
//! read after each call.

use pyo3::prelude::*;
use sumlink_congestion::hystart::HystartParameters;
use sumlink_congestion::{
    Ack as EngineAck, CongestionControl, Idle, Instant, Loss, Siblings, Timeout, Window,
    WindowParameters,
};

use crate::fault::{Fault, shown};

/// An acknowledgment of new data.
#[pyclass(frozen, get_all, module = "sumlink_sim._native")]
pub(crate) struct Ack {
    now: f64,
    acked: u32,
    rtt: Option<f64>,
    srtt: f64,
    acknowledged: u64,
    sent: u64,
    cwnd_limited: bool,
}

/// An instance of the class, for one end of a connection.
#[derive(Debug)]
pub(crate) struct PyCongestion {
    /// `None` if the constructor failed, which ends the run.
    instance: Option<Py<PyAny>>,
    name: String,
    window: Window,
    pacing_rate: Option<f64>,
    fault: Fault,
}

impl PyCongestion {
    pub(crate) fn new(class: &Py<PyAny>, name: &str, fault: Fault) -> Self {
        // The minimum: the class sets its own limits.
        let limits = WindowParameters {
            min_ssthresh: 1,
            ..WindowParameters::default()
        };
        let window = Window::new(limits, HystartParameters::default());
        let mut new = Self {
            instance: None,
            name: name.to_owned(),
            window: window.expect("these parameters are within their ranges"),
            pacing_rate: None,
            fault,
        };
        Python::attach(|py| match class.bind(py).call0() {
            Ok(instance) => new.instance = Some(instance.unbind()),
            Err(error) => new.fault.raised(py, &new.place("__init__"), error),
        });
        new.call("__init__", |_| Ok(()));
        new
    }

    fn place(&self, method: &str) -> String {
        format!("the congestion control {}, {method}", self.name)
    }

    /// Calls a method and reads the resulting window; an error ends the run.
    fn call(&mut self, method: &str, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) {
        if self.fault.is_there() {
            return;
        }
        let Some(instance) = &self.instance else {
            return;
        };
        let read = Python::attach(|py| {
            let instance = instance.bind(py);
            match call(instance).and_then(|()| read(instance)) {
                Ok(values) => Some(values),
                Err(error) => {
                    self.fault.raised(py, &self.place(method), error);
                    None
                }
            }
        });
        match read {
            None => {}
            Some(Err(reason)) => self.fault.nonsense(&self.place(method), &reason),
            Some(Ok((cwnd, ssthresh, pacing_rate))) => {
                self.window.set_ssthresh(ssthresh);
                self.window.set_cwnd(cwnd);
                self.pacing_rate = pacing_rate;
            }
        }
    }
}

/// Window, threshold and rate, or the reason why one of them is invalid.
type Values = Result<(f64, f64, Option<f64>), String>;

fn read(instance: &Bound<'_, PyAny>) -> PyResult<Values> {
    let number = |name: &str, is_right: fn(f64) -> bool, range: &str| -> PyResult<_> {
        let value = instance.getattr(name)?;
        let number = value.extract().ok().filter(|number| is_right(*number));
        Ok(number.ok_or_else(|| format!("set {name} to {}; it must be {range}", shown(&value))))
    };
    // Comparisons with NaN are false.
    let cwnd = number(
        "cwnd",
        |cwnd| (1.0..=1e9).contains(&cwnd),
        "a number of packets from 1 to 1e9",
    )?;
    let ssthresh = number(
        "ssthresh",
        |ssthresh| ssthresh >= 1.0,
        "at least 1 packet, or math.inf",
    )?;
    let pacing_rate = match instance.getattr("pacing_rate")?.is_none() {
        true => Ok(None),
        false => number(
            "pacing_rate",
            |rate| rate > 0.0 && rate.is_finite(),
            "above 0 packets per second, or None",
        )?
        .map(Some),
    };
    Ok(cwnd.and_then(|cwnd| Ok((cwnd, ssthresh?, pacing_rate?))))
}

impl CongestionControl for PyCongestion {
    fn name(&self) -> &str {
        &self.name
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, ack: &EngineAck, _siblings: &Siblings<'_>) {
        self.window.measure(ack);
        self.call("on_ack", |instance| {
            let seen = Ack {
                now: ack.now.as_secs_f64(),
                acked: ack.acked,
                rtt: ack.rtt.map(|rtt| rtt.as_secs_f64()),
                srtt: ack.srtt.as_secs_f64(),
                acknowledged: ack.acknowledged,
                sent: ack.sent,
                cwnd_limited: ack.cwnd_limited,
            };
            instance.call_method1("on_ack", (seen,)).map(drop)
        });
    }

    fn on_loss(&mut self, loss: &Loss, _siblings: &Siblings<'_>) {
        let now = loss.now.as_secs_f64();
        self.call("on_loss", |instance| {
            instance.call_method1("on_loss", (now,)).map(drop)
        });
    }

    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        let now = timeout.now.as_secs_f64();
        self.call("on_timeout", |instance| {
            instance
                .call_method1("on_timeout", (now, timeout.repeated))
                .map(drop)
        });
    }

    fn on_recovery_exit(&mut self, now: Instant) {
        self.call("on_recovery_exit", |instance| {
            instance
                .call_method1("on_recovery_exit", (now.as_secs_f64(),))
                .map(drop)
        });
    }

    fn on_spurious_loss(&mut self, now: Instant) {
        self.call("on_spurious_loss", |instance| {
            instance
                .call_method1("on_spurious_loss", (now.as_secs_f64(),))
                .map(drop)
        });
    }

    fn on_idle_end(&mut self, idle: &Idle) {
        let (now, lasted, rto) = (idle.now, idle.lasted, idle.rto);
        self.call("on_idle_end", |instance| {
            let seconds = [now, lasted, rto].map(|time| time.as_secs_f64());
            instance
                .call_method1("on_idle_end", (seconds[0], seconds[1], seconds[2]))
                .map(drop)
        });
    }

    fn pacing_rate(&self) -> Option<f64> {
        self.pacing_rate
    }
}
