//! Rules by domain: which upstreams answer a name, or that it is blocked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::upstream::{Group, Upstream};
use crate::wire::Name;

/// What happens to a domain and everything below it.
#[derive(Clone, Debug)]
pub enum Action {
    /// These upstreams answer, in this order, and they may answer with private addresses: a domain
    /// with its own resolvers is usually a private one.
    Forward(Vec<Upstream>),
    /// These upstreams answer, in this order, and answers with private addresses are refused.
    ForwardPublic(Vec<Upstream>),
    /// The name does not exist.
    Block,
}

/// The rules of a forwarder. The longest suffix that matches a name decides.
#[derive(Clone, Debug)]
pub struct Rules {
    default: Arc<Group>,
    actions: HashMap<Name, Decision>,
    private: HashSet<Name>,
}

/// What happens to a question.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    Forward {
        group: Arc<Group>,
        may_be_private: bool,
    },
    Block,
}

impl Rules {
    /// Rules under which `upstreams` answer all names, in this order.
    pub fn new(upstreams: Vec<Upstream>) -> Self {
        Self {
            default: Arc::new(Group::new(upstreams)),
            actions: HashMap::new(),
            private: HashSet::new(),
        }
    }

    /// Adds a rule for `suffix`. It replaces an earlier one for the same suffix.
    pub fn with(mut self, suffix: Name, action: Action) -> Self {
        let forward = |upstreams, may_be_private| Decision::Forward {
            group: Arc::new(Group::new(upstreams)),
            may_be_private,
        };
        let decision = match action {
            Action::Forward(upstreams) => forward(upstreams, true),
            Action::ForwardPublic(upstreams) => forward(upstreams, false),
            Action::Block => Decision::Block,
        };
        self.actions.insert(suffix, decision);
        self
    }

    /// Allows private addresses in answers for `suffix` and everything below it.
    pub fn with_private(mut self, suffix: Name) -> Self {
        self.private.insert(suffix);
        self
    }

    /// The rule that decides for `name`, with its suffix; without a rule, `None`.
    pub(crate) fn explicit(&self, name: &Name) -> Option<Decision> {
        let mut decision = name
            .suffixes()
            .find_map(|suffix| self.actions.get(suffix))
            .cloned()?;
        if let Decision::Forward { may_be_private, .. } = &mut decision {
            *may_be_private |= self.is_private(name);
        }
        Some(decision)
    }

    /// What happens to `name` without a rule for it.
    pub(crate) fn default(&self, name: &Name) -> Decision {
        Decision::Forward {
            group: Arc::clone(&self.default),
            may_be_private: self.is_private(name),
        }
    }

    /// All upstreams, those of the default first, each once.
    pub(crate) fn upstreams(&self) -> Vec<Upstream> {
        let groups = self.actions.values().filter_map(|decision| match decision {
            Decision::Forward { group, .. } => Some(group),
            Decision::Block => None,
        });
        let groups = std::iter::once(&self.default).chain(groups);
        let mut all: Vec<Upstream> = Vec::new();
        for upstream in groups.flat_map(|group| group.members()) {
            if !all.iter().any(|known| known.is_same(upstream)) {
                all.push(upstream.clone());
            }
        }
        all
    }

    fn is_private(&self, name: &Name) -> bool {
        name.suffixes().any(|suffix| self.private.contains(suffix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_suffix_decides() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let rules = Rules::new(Vec::new())
            .with(name("example"), Action::Block)
            .with(name("corp.example"), Action::Forward(Vec::new()))
            .with(
                name("public.corp.example"),
                Action::ForwardPublic(Vec::new()),
            )
            .with_private(name("home.public.corp.example"));
        let decide = |text: &str| match rules.explicit(&name(text)) {
            None => "none",
            Some(Decision::Block) => "block",
            Some(Decision::Forward {
                may_be_private: true,
                ..
            }) => "private",
            Some(Decision::Forward { .. }) => "public",
        };
        assert_eq!(decide("org"), "none");
        assert_eq!(decide("a.example"), "block");
        assert_eq!(decide("mycorp.example"), "block");
        assert_eq!(decide("corp.example"), "private");
        assert_eq!(decide("x.public.corp.example"), "public");
        assert_eq!(decide("x.home.public.corp.example"), "private");
    }
}
