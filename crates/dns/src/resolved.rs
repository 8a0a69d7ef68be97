//! The result of a question to upstreams.

use bytes::Bytes;

/// A result, shared by all clients with the same question.
#[derive(Clone, Debug)]
pub(crate) enum Resolved {
    /// A response, stored.
    Response(Bytes),
    /// A response that reports a failure, stored.
    Failure(Bytes),
    /// It had a private address.
    Private,
    /// No upstream answered.
    Failed,
}
