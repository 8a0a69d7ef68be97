//! The class of a connection's streams and datagrams, before and after its request.

use std::sync::Arc;

use sumlink_transport::target::Target;

use crate::class::{Flow, class_of, class_of_datagrams};
use crate::{Class, ClassRule};

/// The rules, and the properties of a connection known before its request.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) rules: Arc<[ClassRule]>,
    pub(crate) dscp: Option<u8>,
}

impl Classes {
    /// The class of a stream to `target`, requested by `user` if a name was sent.
    pub(crate) fn of(&self, target: &Target, user: Option<&[u8]>) -> Option<Class> {
        let (port, dscp) = (target.port, self.dscp);
        class_of(&self.rules, &Flow { port, dscp, user })
    }

    /// The class of a flow of datagrams to `target`, with the DSCP of its first datagram.
    pub(crate) fn of_datagrams(
        &self,
        target: &Target,
        user: Option<&[u8]>,
        dscp: Option<u8>,
    ) -> Option<Class> {
        let port = target.port;
        class_of_datagrams(&self.rules, &Flow { port, dscp, user })
    }

    /// Whether a rule depends on the user name.
    pub(crate) fn needs_user(&self) -> bool {
        self.rules.iter().any(|rule| rule.user.is_some())
    }
}
