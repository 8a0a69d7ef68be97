//! The senders of one bond in one direction, whose coupled congestion controls see each other.

use std::cell::RefCell;
use std::rc::Rc;

use sumlink_congestion::{Flow, Siblings};

/// The senders of one bond in one direction. Clones refer to the same group.
#[derive(Clone, Debug, Default)]
pub struct Group(Rc<RefCell<Flows>>);

#[derive(Debug, Default)]
struct Flows {
    /// State of each member after its last event. Members that left have no measurements, so they
    /// do not count.
    flows: Vec<Flow>,
    /// Free places of members that left.
    free: Vec<usize>,
}

/// A sender's membership; dropping it leaves the group.
#[derive(Debug)]
pub(super) struct Member {
    group: Group,
    place: usize,
}

impl Group {
    /// Adds a member.
    pub(super) fn join(&self) -> Member {
        let mut flows = self.0.borrow_mut();
        let place = flows.free.pop().unwrap_or_else(|| {
            flows.flows.push(Flow::default());
            flows.flows.len() - 1
        });
        drop(flows);
        Member {
            group: self.clone(),
            place,
        }
    }
}

impl Member {
    /// Publishes the sender's state to its siblings.
    pub(super) fn publish(&self, flow: Flow) {
        self.group.0.borrow_mut().flows[self.place] = flow;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut flows = self.group.0.borrow_mut();
        flows.flows[self.place] = Flow::default();
        flows.free.push(self.place);
    }
}

/// Calls `call` with the siblings of a member, or with none.
pub(super) fn with_siblings<T>(
    member: Option<&Member>,
    call: impl FnOnce(&Siblings<'_>) -> T,
) -> T {
    match member {
        None => call(&Siblings::NONE),
        Some(member) => {
            let flows = member.group.0.borrow();
            call(&Siblings::of(&flows.flows, member.place))
        }
    }
}
