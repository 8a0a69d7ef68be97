//! The client's side of the traffic: one thread for each flow.

use std::thread;
use std::time::Duration;

use sumlink_transport::Class;

use crate::results::{DatagramsRecord, FlowRecord, ObjectRecord};

use super::connection::{self, End, Wire};
use super::record::Recorder;
use super::requests;
use super::server::early;
use super::{
    Channel, Job, Keys, Load, Request, Route, Spec, Window, curl, datagrams, http3, library, many,
    names, sleep_until_ns, tls,
};

/// Runs the workload; returns when the run is over.
pub(crate) fn run(spec: &Spec) -> Vec<FlowRecord> {
    let threads: Vec<_> = flows(spec)
        .into_iter()
        .map(|flow| thread::spawn(move || flow.run()))
        .collect();
    threads
        .into_iter()
        .flat_map(|thread| {
            thread.join().unwrap_or_else(|_| {
                vec![FlowRecord {
                    error: Some("the traffic program failed".to_owned()),
                    ..FlowRecord::default()
                }]
            })
        })
        .collect()
}

/// All flows of the workload, numbered.
fn flows(spec: &Spec) -> Vec<Flow> {
    let ways = [(spec.down, true), (spec.up, false)];
    let ways = || {
        ways.iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, down)| *down)
    };
    let mut flows: Vec<Flow> = Vec::new();
    let mut add = |route: &Route, down: bool, load: &Load, rival: bool| {
        let number = 2 * u32::try_from(flows.len()).unwrap_or(u32::MAX / 2) + u32::from(!down);
        flows.push(Flow::new(number, route, down, load, rival, spec));
    };
    let of_class = |route: &Route, class: &Option<String>| Route {
        class: class.clone(),
        ..route.clone()
    };
    for route in &spec.routes {
        let beside = of_class(route, &spec.load_class);
        let route = &of_class(route, &spec.class);
        match &spec.load {
            // The client counts, whatever the direction.
            Load::Curl | Load::Connections { .. } | Load::Open { .. } | Load::Names { .. } => {
                add(route, true, &spec.load, false);
            }
            Load::Requests { bulk, .. } => {
                // Questions are counted by the asking side, whichever direction the load has.
                add(route, true, &spec.load, false);
                for down in ways().filter(|_| *bulk) {
                    add(&beside, down, &Load::Bulk, false);
                }
            }
            Load::Datagrams {
                bulk, both_ways, ..
            } => {
                match both_ways {
                    true => add(route, true, &spec.load, false),
                    false => ways().for_each(|down| add(route, down, &spec.load, false)),
                }
                for down in ways().filter(|_| *bulk) {
                    add(&beside, down, &Load::Bulk, false);
                }
            }
            Load::Http3 { probe } => {
                for down in ways() {
                    add(route, down, &spec.load, false);
                }
                if *probe {
                    add(route, true, &Load::Echo, false);
                }
            }
            load => {
                for down in ways() {
                    add(route, down, load, false);
                }
            }
        }
    }
    if let Some(route) = &spec.rival {
        for down in ways() {
            add(route, down, &Load::Bulk, true);
        }
    }
    flows
}

struct Flow {
    number: u32,
    route: Route,
    down: bool,
    load: Load,
    spec: Spec,
    window: Window,
    recorder: Recorder,
}

impl Flow {
    fn new(number: u32, route: &Route, down: bool, load: &Load, rival: bool, spec: &Spec) -> Self {
        let window = Window {
            epoch_ns: spec.epoch_ns,
            duration_ms: spec.duration_ms,
        };
        let mut recorder = Recorder::new(number, window, spec.interval_ms);
        if matches!(load, Load::Bulk | Load::Curl | Load::Http3 { .. }) && !rival {
            recorder = recorder.with_arrivals();
        }
        recorder.record.link.clone_from(&route.link);
        recorder.record.rival = rival;
        Self {
            number,
            route: route.clone(),
            down,
            load: load.clone(),
            spec: spec.clone(),
            window,
            recorder,
        }
    }

    /// One record, or one for each direction of a flow of datagrams with both.
    fn run(mut self) -> Vec<FlowRecord> {
        sleep_until_ns(self.spec.epoch_ns);
        let mut other_way = None;
        let result = match self.load.clone() {
            Load::Datagrams {
                sizes,
                cycle_ns,
                both_ways,
                ..
            } => {
                let (down, up) = (self.down || both_ways, !self.down || both_ways);
                let request = self.request(&Job::Datagrams {
                    sizes,
                    cycle_ns,
                    down,
                    up,
                });
                let ended = datagrams::run(&self.route, &request, &mut self.recorder);
                // The server counts what goes up.
                other_way = both_ways.then(|| FlowRecord {
                    flow: self.number | 1,
                    datagrams: Some(DatagramsRecord::default()),
                    buckets: vec![0; self.recorder.record.buckets.len()],
                    ..self.recorder.record.clone()
                });
                ended
            }
            Load::Echo => {
                let request = self.request(&Job::Echo);
                datagrams::run(&self.route, &request, &mut self.recorder)
            }
            Load::Http3 { .. } => {
                let request = self.request(&Job::Bulk);
                match &self.spec.http3 {
                    Some(keys) => http3::run(&self.route, keys, &request, &mut self.recorder),
                    None => Err("there are no keys for HTTP/3".to_owned()),
                }
            }
            Load::Bulk => match self.route.channel.clone() {
                Channel::Library { keys, variant } => self.through_library(&keys, &variant),
                _ => self.stream(Job::Bulk),
            },
            Load::Curl => curl::run(&self.route, self.window, &mut self.recorder),
            Load::Connections { parallel, answer } => {
                self.many(many::Kind::Short { parallel, answer })
            }
            Load::Open { count } => self.many(many::Kind::Open { count }),
            Load::Names { cached, gap_ms } => {
                let gap = Duration::from_millis(gap_ms);
                names::run(&self.route, cached, gap, self.window, &mut self.recorder)
            }
            Load::Cbr { rate, message } => self.stream(Job::Cbr { rate, message }),
            Load::Files {
                sizes,
                count,
                gap_ms,
                pace,
            } => self.objects(&sizes, count, Duration::from_millis(gap_ms), pace),
            Load::Requests {
                request,
                answer,
                gap_ms,
                ..
            } => self.questions(request, answer, Duration::from_millis(gap_ms)),
        };
        if let Err(error) = result {
            self.recorder.record.error = Some(error);
        }
        [Some(self.recorder.record), other_way]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Opens a connection and sends its request; `None` when the run is over.
    fn ask(&mut self, job: &Job) -> Result<Option<Box<dyn Wire>>, String> {
        let Some(stream) = connection::connect(&self.route, self.window)? else {
            return Ok(None);
        };
        self.recorder.record.connected = true;
        let mut stream: Box<dyn Wire> = match &self.route.channel {
            Channel::Tls(keys) => Box::new(tls::connect(keys, stream)?),
            _ => Box::new(stream),
        };
        let request = self.request(job);
        connection::send_request(stream.as_mut(), &request).map_err(|error| error.to_string())?;
        Ok(Some(stream))
    }

    fn request(&self, job: &Job) -> Request {
        Request {
            flow: self.number,
            epoch_ns: self.spec.epoch_ns,
            duration_ms: self.spec.duration_ms,
            interval_ms: self.spec.interval_ms,
            down: self.down,
            job: job.clone(),
        }
    }

    /// One stream of the library for the whole run.
    fn through_library(&mut self, keys: &Keys, variant: &str) -> Result<(), String> {
        let class = self.route.class.as_deref().and_then(Class::from_name);
        let request = self.request(&Job::Bulk);
        let (target, window) = (self.route.target, self.window);
        library::run(
            target,
            keys,
            variant,
            class,
            &request,
            window,
            &mut self.recorder,
        )
    }

    /// Many connections.
    fn many(&mut self, kind: many::Kind) -> Result<(), String> {
        many::run(&self.route, kind, self.window, &mut self.recorder)
    }

    /// One connection for the whole run.
    fn stream(&mut self, job: Job) -> Result<(), String> {
        let Some(mut stream) = self.ask(&job)? else {
            return Ok(());
        };
        let window = self.window;
        let message = |size: u64| {
            usize::try_from(size)
                .unwrap_or(connection::STAMP)
                .max(connection::STAMP)
        };
        let end = match (self.down, &job) {
            (true, Job::Cbr { message: size, .. }) => {
                let recorder = &mut self.recorder;
                connection::receive_messages(stream.as_mut(), message(*size), window, recorder)
            }
            (true, _) => connection::receive(stream.as_mut(), None, window, &mut self.recorder),
            (
                false,
                Job::Cbr {
                    rate,
                    message: size,
                },
            ) => connection::send_messages(stream.as_mut(), *rate, message(*size), window)
                .map_err(|error| error.to_string()),
            (false, _) => {
                connection::send(stream.as_mut(), None, window).map_err(|error| error.to_string())
            }
        }?;
        match end {
            // The sender stops by the same clock, a moment earlier or later.
            End::Closed if window.left().is_some_and(|left| left > CLOSING) => Err(early(window)),
            _ => Ok(()),
        }
    }

    /// Questions in sequence on one connection.
    fn questions(&mut self, request: u64, answer: u64, gap: Duration) -> Result<(), String> {
        let Some(mut stream) = self.ask(&Job::Answers { request, answer })? else {
            return Ok(());
        };
        let window = self.window;
        match requests::ask(
            stream.as_mut(),
            (request, answer),
            gap,
            window,
            &mut self.recorder,
        )? {
            End::Closed if window.left().is_some_and(|left| left > CLOSING) => Err(early(window)),
            _ => Ok(()),
        }
    }

    /// Objects in sequence.
    fn objects(
        &mut self,
        sizes: &[u64],
        count: u64,
        gap: Duration,
        pace: Option<u64>,
    ) -> Result<(), String> {
        let mut next_s = self.window.elapsed_s();
        for _ in 0..count {
            for size in sizes {
                if !self.object(*size)? {
                    return Ok(());
                }
                let Some(left) = self.window.left() else {
                    return Ok(());
                };
                let paced_s = pace.map_or(0.0, |rate| *size as f64 * 8.0 / rate as f64);
                next_s += paced_s + gap.as_secs_f64();
                let early_s = (next_s - self.window.elapsed_s()).max(0.0);
                thread::sleep(gap.max(Duration::from_secs_f64(early_s)).min(left));
            }
        }
        Ok(())
    }

    /// One object on a separate connection; `false` when the run ended before it arrived.
    fn object(&mut self, size: u64) -> Result<bool, String> {
        let start_s = self.window.elapsed_s();
        let Some(mut stream) = self.ask(&Job::Object { size })? else {
            return Ok(false);
        };
        let window = self.window;
        let end = if self.down {
            connection::receive(stream.as_mut(), Some(size), window, &mut self.recorder)?
        } else {
            let sent = connection::send(stream.as_mut(), Some(size), window);
            match sent.map_err(|error| error.to_string())? {
                // The server confirms that the whole object has arrived.
                End::Done => connection::read_full(stream.as_mut(), &mut [0], window)
                    .map_err(|error| error.to_string())?,
                end => end,
            }
        };
        match end {
            End::Done => {
                self.recorder.record.objects.push(ObjectRecord {
                    size,
                    start_s,
                    duration_s: window.elapsed_s() - start_s,
                });
                Ok(true)
            }
            End::Time => Ok(false),
            End::Closed if window.left().is_some_and(|left| left > CLOSING) => Err(early(window)),
            End::Closed => Ok(false),
        }
    }
}

/// Tolerance for the end of the other side.
const CLOSING: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_has_a_number_and_a_class_of_its_own() {
        let route = Route::direct(([127, 0, 0, 1], 1).into());
        let requests = Load::Requests {
            request: 16,
            answer: 16,
            gap_ms: 1,
            bulk: true,
        };
        let spec = Spec {
            epoch_ns: 0,
            duration_ms: 0,
            interval_ms: 100,
            routes: vec![route.clone(), route.clone()],
            down: false,
            up: true,
            load: requests,
            class: Some("interactive".to_owned()),
            load_class: Some("background".to_owned()),
            rival: Some(route),
            http3: None,
        };
        let flows = flows(&spec);
        let numbers: Vec<_> = flows.iter().map(|flow| flow.number).collect();
        // Questions and a load in each direction, and the rival; uploads have odd numbers.
        assert_eq!(numbers, [0, 3, 4, 7, 9]);
        let rivals: Vec<_> = flows
            .iter()
            .map(|flow| flow.recorder.record.rival)
            .collect();
        assert_eq!(rivals, [false, false, false, false, true]);
        let classes: Vec<_> = flows
            .iter()
            .map(|flow| flow.route.class.as_deref())
            .collect();
        let (asks, load) = (Some("interactive"), Some("background"));
        assert_eq!(classes, [asks, load, asks, load, None]);
    }
}
