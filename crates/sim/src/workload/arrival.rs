//! How programs handle received bytes: they answer, count and record.

use sumlink_scenario::results::{FlowRecord, ObjectRecord};

use super::load::Load;
use super::{Bearer, Channel, ENDLESS, Programs, REQUEST};
use crate::clock::{MILLISECOND, Nanos, SECOND, scaled};
use crate::net::{Alarm, Net};
use crate::tcp::Side;

impl Programs {
    /// The program of a side received bytes.
    pub(super) fn received(
        &mut self,
        number: usize,
        channel: Channel,
        side: Side,
        bytes: u64,
        net: &mut Net,
        bearer: &mut dyn Bearer,
    ) {
        let flow = &mut self.flows[number];
        let total = flow.received[side.index()];
        if side == Side::Server && !flow.is_asked {
            if total < REQUEST {
                return;
            }
            flow.is_asked = true;
            self.answer(number, channel, net, bearer);
            let more = total - REQUEST;
            if more > 0 {
                self.count(number, side, more, net, bearer);
            }
            return;
        }
        self.count(number, side, bytes, net, bearer);
    }

    /// The server has read the request.
    fn answer(&mut self, number: usize, channel: Channel, net: &mut Net, bearer: &mut dyn Bearer) {
        let flow = &mut self.flows[number];
        if !flow.down {
            return;
        }
        match &mut flow.load {
            Load::Bulk | Load::Spells(_) => {
                bearer.offer(net, channel, Side::Server, ENDLESS);
            }
            Load::Objects { sizes, asked, .. } => {
                let size = sizes[((*asked - 1) % sizes.len() as u64) as usize];
                bearer.offer(net, channel, Side::Server, size);
            }
            Load::Messages { first, .. } => {
                *first = net.now();
                net.wake(net.now(), Alarm::Flow(number));
            }
            Load::Questions { .. } => {}
        }
    }

    /// Bytes of the answer arrived at a side.
    fn count(
        &mut self,
        number: usize,
        side: Side,
        bytes: u64,
        net: &mut Net,
        bearer: &mut dyn Bearer,
    ) {
        let now = net.now();
        let elapsed = net.elapsed();
        let flow = &mut self.flows[number];
        let channel = flow.channel.unwrap_or_default();
        let is_receiver = (side == Side::Client) == flow.down;
        if is_receiver {
            flow.record.count(elapsed, self.interval, bytes);
        }
        let arrived = match side {
            Side::Client => flow.received[0],
            Side::Server => flow.received[1] - REQUEST,
        };
        match &mut flow.load {
            Load::Bulk | Load::Spells(_) => {}
            Load::Objects {
                sizes,
                asked,
                all,
                gap,
                pace,
                due,
            } => {
                let size = sizes[((*asked - 1) % sizes.len() as u64) as usize];
                match (side, flow.down) {
                    (Side::Server, false) if arrived == size => {
                        return bearer.offer(net, channel, Side::Server, 1);
                    }
                    (Side::Client, true) if arrived == size => {}
                    (Side::Client, false) => {}
                    _ => return,
                }
                let begun = elapsed - (now - flow.since);
                flow.record.objects.push(ObjectRecord {
                    size,
                    start_s: begun as f64 / SECOND as f64,
                    duration_s: (now - flow.since) as f64 / SECOND as f64,
                });
                flow.channel = None;
                flow.is_over = asked == all;
                let paced = pace.map_or(0, |rate| scaled(size * 8, SECOND, rate));
                let next = due.unwrap_or(flow.since) + paced + *gap;
                *due = Some(next);
                net.wake(next.max(now + *gap), Alarm::Flow(number));
                bearer.close(net, channel);
            }
            Load::Questions {
                question,
                answer,
                gap,
                asked,
                answered,
            } => match side {
                Side::Server if arrived == *question * *asked => {
                    let bytes = *answer;
                    bearer.offer(net, channel, Side::Server, bytes);
                }
                Side::Client if arrived == *answer * *asked => {
                    *answered += 1;
                    note_message(&mut flow.record, flow.since, now, elapsed);
                    net.wake(now + *gap, Alarm::Flow(number));
                }
                _ => {}
            },
            Load::Messages {
                size, pause, first, ..
            } => {
                if is_receiver {
                    let before = (arrived - bytes) / *size;
                    for message in before..arrived / *size {
                        let due = *first + *pause * message;
                        note_message(&mut flow.record, due, now, elapsed);
                    }
                }
            }
        }
    }
}

/// Records a message that was due at `due` and arrived now, or a question that was due then and is
/// answered now.
fn note_message(record: &mut FlowRecord, due: Nanos, now: Nanos, elapsed: Nanos) {
    let took = now.saturating_sub(due);
    let at = elapsed.saturating_sub(took) as f64 / SECOND as f64;
    record.messages.push((at, took as f64 / MILLISECOND as f64));
}
