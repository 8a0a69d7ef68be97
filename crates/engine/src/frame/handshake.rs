//! The frames that open a carrier: the client's HELLO, and the reasons for which a server refuses
//! it.

/// Body of a HELLO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// [`VERSION`](super::VERSION).
    pub version: u64,
    /// Creates the session (true) or joins an existing one (false).
    pub new: bool,
    /// The session's identifier, chosen at random by the client.
    pub session: [u8; 16],
    /// The path's number. A client never uses one twice in a session.
    pub path: u64,
    /// The link's name at the client, shown in the server's status.
    pub link: &'a [u8],
}

/// The reason for which a server refuses a carrier: the code of a REFUSE frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefuseCode {
    /// The server does not support the version in HELLO.
    Version,
    /// A join to a session that does not exist for this key.
    NoSuchSession,
    /// A new session with an identifier that already exists for this key.
    SessionExists,
    /// The client has reached one of its limits.
    Limit,
    /// The carrier did not begin with a valid HELLO.
    Protocol,
    /// The server is shutting down.
    Stopping,
    /// A code that this version does not know.
    Unknown,
}

impl RefuseCode {
    /// The code on the wire.
    pub fn code(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Version => 1,
            Self::NoSuchSession => 2,
            Self::SessionExists => 3,
            Self::Limit => 4,
            Self::Protocol => 5,
            Self::Stopping => 6,
        }
    }

    /// The meaning of a code.
    pub fn from_code(code: u64) -> Self {
        match code {
            1 => Self::Version,
            2 => Self::NoSuchSession,
            3 => Self::SessionExists,
            4 => Self::Limit,
            5 => Self::Protocol,
            6 => Self::Stopping,
            _ => Self::Unknown,
        }
    }
}
