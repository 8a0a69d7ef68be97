//! All flows of a session, found by number and in the order of their activity.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Flow;
use crate::Instant;
use crate::datagram::{DatagramConfig, FlowId};

/// A flow moves to the end of its list at most this often, so the lists are accurate to this.
const ACCURACY: Duration = Duration::from_secs(1);

/// End of a list.
const NONE: u32 = u32::MAX;

/// A place in the table, together with the flow that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowRef {
    index: u32,
    id: FlowId,
}

impl FlowRef {
    /// The first place in order.
    pub(in crate::datagram) const FIRST: Self = Self { index: 0, id: 0 };
}

/// The list that a flow is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Flows that expire early.
    Short,
    Normal,
    /// Flows that have been calls.
    Call,
}

/// A flow's place in the order of activity.
#[derive(Clone, Copy, Debug)]
pub(in crate::datagram) struct Link {
    kind: Kind,
    previous: u32,
    next: u32,
    /// When it was put at the end of the list.
    at: Instant,
    /// It ends if it is idle for this long.
    pub(in crate::datagram) timeout: Duration,
}

impl Link {
    pub(super) fn new(timeout: Duration, limits: &DatagramConfig) -> Self {
        Self {
            kind: match timeout < limits.idle_timeout {
                true => Kind::Short,
                false => Kind::Normal,
            },
            previous: NONE,
            next: NONE,
            at: Instant::ZERO,
            timeout,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// The flows of a session.
#[derive(Debug)]
pub(crate) struct FlowTable {
    slots: Vec<Option<Flow>>,
    free: Vec<u32>,
    ids: BTreeMap<FlowId, u32>,
    /// The flow that was last looked up: datagrams come in bursts of one flow.
    recent: Option<FlowRef>,
    lists: [List; 3],
}

impl Default for FlowTable {
    fn default() -> Self {
        let list = List {
            first: NONE,
            last: NONE,
        };
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ids: BTreeMap::new(),
            recent: None,
            lists: [list; 3],
        }
    }
}

impl FlowTable {
    pub(in crate::datagram) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The place of a flow.
    pub(in crate::datagram) fn find(&mut self, id: FlowId) -> Option<FlowRef> {
        if let Some(recent) = self.recent.filter(|recent| recent.id == id) {
            return Some(recent);
        }
        let index = *self.ids.get(&id)?;
        self.recent = Some(FlowRef { index, id });
        self.recent
    }

    /// The flow at a place, unless it has ended.
    pub(in crate::datagram) fn get(&self, at: FlowRef) -> Option<&Flow> {
        let flow = self.slots.get(at.index as usize)?.as_ref();
        flow.filter(|flow| flow.id == at.id)
    }

    pub(in crate::datagram) fn get_mut(&mut self, at: FlowRef) -> Option<&mut Flow> {
        let flow = self.slots.get_mut(at.index as usize)?.as_mut();
        flow.filter(|flow| flow.id == at.id)
    }

    /// Adds a flow with a new number.
    pub(in crate::datagram) fn insert(&mut self, flow: Flow, now: Instant) -> FlowRef {
        let id = flow.id;
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(flow);
                index
            }
            None => {
                self.slots.push(Some(flow));
                self.slots.len() as u32 - 1
            }
        };
        self.ids.insert(id, index);
        self.append(index, now);
        FlowRef { index, id }
    }

    pub(in crate::datagram) fn remove(&mut self, at: FlowRef) -> Option<Flow> {
        self.get(at)?;
        self.detach(at.index);
        self.ids.remove(&at.id);
        self.recent = self.recent.filter(|recent| *recent != at);
        self.free.push(at.index);
        self.slots[at.index as usize].take()
    }

    /// Flows in the order of their numbers.
    pub(in crate::datagram) fn iter(&self) -> impl Iterator<Item = &Flow> {
        let at = |index: &u32| self.slots[*index as usize].as_ref();
        self.ids.values().filter_map(at)
    }

    /// The places of all flows.
    pub(in crate::datagram) fn refs(&self) -> impl Iterator<Item = FlowRef> + '_ {
        let at = |(&id, &index): (&FlowId, &u32)| FlowRef { index, id };
        self.ids.iter().map(at)
    }

    /// Updates the order after a flow's activity.
    pub(in crate::datagram) fn touch(&mut self, at: FlowRef, now: Instant) {
        let Some(flow) = self.get_mut(at) else {
            return;
        };
        let is_new_call = flow.called_at.is_some() && flow.link.kind != Kind::Call;
        if !is_new_call && now.saturating_sub(flow.link.at) < ACCURACY {
            return;
        }
        self.detach(at.index);
        if is_new_call && let Some(flow) = self.get_mut(at) {
            flow.link.kind = Kind::Call;
        }
        self.append(at.index, now);
    }

    /// When the next flow may expire.
    pub(in crate::datagram) fn next_expiry(&self) -> Option<Instant> {
        let firsts = self.lists.iter().filter_map(|list| self.at(list.first));
        firsts.map(|flow| flow.active_at + flow.link.timeout).min()
    }

    /// A flow that has been idle for its timeout.
    pub(in crate::datagram) fn expired(&self, now: Instant) -> Option<FlowRef> {
        let is_over = |flow: &&Flow| flow.active_at + flow.link.timeout <= now;
        let firsts = self.lists.iter();
        let first = firsts
            .filter_map(|list| Some((list.first, self.at(list.first)?)))
            .find(|(_, flow)| is_over(flow));
        first.map(|(index, flow)| FlowRef { index, id: flow.id })
    }

    /// The flow that has been idle for longest and is not a call.
    pub(in crate::datagram) fn oldest(&self, now: Instant) -> Option<FlowRef> {
        let firsts = self.lists.iter();
        let idle = firsts
            .filter_map(|list| Some((list.first, self.at(list.first)?)))
            .filter(|(_, flow)| !flow.is_call(now));
        let (index, flow) = idle.min_by_key(|(_, flow)| flow.active_at)?;
        Some(FlowRef { index, id: flow.id })
    }

    fn at(&self, index: u32) -> Option<&Flow> {
        self.slots.get(index as usize)?.as_ref()
    }

    fn link(&mut self, index: u32) -> Option<&mut Link> {
        let flow = self.slots.get_mut(index as usize)?.as_mut()?;
        Some(&mut flow.link)
    }

    fn detach(&mut self, index: u32) {
        let Some(link) = self.link(index).copied() else {
            return;
        };
        let list = link.kind as usize;
        match self.link(link.previous) {
            Some(previous) => previous.next = link.next,
            None => self.lists[list].first = link.next,
        }
        match self.link(link.next) {
            Some(next) => next.previous = link.previous,
            None => self.lists[list].last = link.previous,
        }
    }

    fn append(&mut self, index: u32, now: Instant) {
        let Some(kind) = self.link(index).map(|link| link.kind) else {
            return;
        };
        let last = self.lists[kind as usize].last;
        match self.link(last) {
            Some(last) => last.next = index,
            None => self.lists[kind as usize].first = index,
        }
        self.lists[kind as usize].last = index;
        if let Some(link) = self.link(index) {
            (link.previous, link.next, link.at) = (last, NONE, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::datagram::FlowConfig;

    fn table(config: &DatagramConfig, flows: u64) -> FlowTable {
        let mut table = FlowTable::default();
        for id in 0..flows {
            let now = Instant::from_secs(id);
            let flow = Flow::new(id, FlowConfig::default(), config, now);
            table.insert(flow, now);
        }
        table
    }

    fn use_at(table: &mut FlowTable, id: FlowId, class: Option<Class>, now: Instant) {
        let at = table.find(id).unwrap();
        let flow = table.get_mut(at).unwrap();
        flow.class = class;
        flow.note_activity(now);
        table.touch(at, now);
    }

    #[test]
    fn the_flow_idle_for_longest_is_the_oldest_unless_it_is_a_call() {
        let config = DatagramConfig::default();
        let mut table = table(&config, 4);
        let now = Instant::from_secs(10);
        use_at(&mut table, 0, Some(Class::Conversational), now);
        use_at(&mut table, 1, None, now);
        let oldest = |table: &FlowTable, now| table.oldest(now).map(|at| at.id);
        assert_eq!(oldest(&table, now), Some(2));
        for id in [1, 2, 3] {
            let at = table.find(id).unwrap();
            table.remove(at);
        }
        assert_eq!(oldest(&table, now), None, "a call is left");
        assert_eq!(oldest(&table, now + CALL_OVER), Some(0));
        assert_eq!(table.len(), 1);
    }

    const CALL_OVER: Duration = Duration::from_secs(31);

    #[test]
    fn flows_expire_in_the_order_of_their_activity() {
        let config = DatagramConfig {
            idle_timeout: Duration::from_secs(120),
            ..DatagramConfig::default()
        };
        let mut table = table(&config, 3);
        use_at(&mut table, 0, None, Instant::from_secs(50));
        assert_eq!(table.next_expiry(), Some(Instant::from_secs(121)));
        let mut ended = Vec::new();
        for second in 100..200 {
            while let Some(at) = table.expired(Instant::from_secs(second)) {
                ended.push((second, table.remove(at).unwrap().id));
            }
        }
        assert_eq!(ended, [(121, 1), (122, 2), (170, 0)]);
        assert_eq!(table.next_expiry(), None);
    }

    #[test]
    fn a_place_does_not_outlive_its_flow() {
        let config = DatagramConfig::default();
        let mut table = table(&config, 1);
        let at = table.find(0).unwrap();
        table.remove(at);
        let flow = Flow::new(7, FlowConfig::default(), &config, Instant::ZERO);
        table.insert(flow, Instant::ZERO);
        assert!(table.get(at).is_none() && table.remove(at).is_none());
        assert!(table.find(0).is_none() && table.find(7).is_some());
    }
}
