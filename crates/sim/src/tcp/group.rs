//! Senders of one bond, as coupled congestion controls see each other: the flows of one direction.

use std::cell::RefCell;
use std::rc::Rc;

use sumlink_congestion::{Flow, Siblings};

/// The senders of one bond in one direction. Clones are the same group.
#[derive(Clone, Debug, Default)]
pub struct Group(Rc<RefCell<Flows>>);

#[derive(Debug, Default)]
struct Flows {
    /// Of each member how it was after its last event; those who have left are not measured, so that nobody counts them.
    flows: Vec<Flow>,
    /// Places of those who have left.
    free: Vec<usize>,
}

/// A sender's place in its group; it leaves with this value.
#[derive(Debug)]
pub(super) struct Member {
    group: Group,
    place: usize,
}

impl Group {
    /// One more.
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
    /// Tells the others how it is now.
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

/// Calls with the siblings of a member, or with none.
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
