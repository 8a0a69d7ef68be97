//! What a carrier begins with: the client's HELLO, and why a server may refuse it.

/// Body of a HELLO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// [`VERSION`](super::VERSION).
    pub version: u64,
    /// Makes the session (true) or joins one that exists (false).
    pub new: bool,
    /// The session's identifier, drawn at random by the client.
    pub session: [u8; 16],
    /// The path's number; a client never uses one twice in a session.
    pub path: u64,
    /// The link's name at the client, for the server's status.
    pub link: &'a [u8],
}

/// Why a server refuses a carrier: the code of a REFUSE frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefuseCode {
    /// The version in HELLO is not one that the server speaks.
    Version,
    /// A join to a session that does not exist for this key.
    NoSuchSession,
    /// A new session with an identifier that exists already for this key.
    SessionExists,
    /// A limit of the client is used up.
    Limit,
    /// The carrier did not begin with a proper HELLO.
    Protocol,
    /// The server is stopping.
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
