//! Why a rule is not valid, or cannot be changed.

use std::path::PathBuf;

use sumlink_proxy::ClassRuleError;

/// Why a rule is not valid, or the rules cannot be changed. Each is one line for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The text has no action at its end.
    #[error("the rule has no action; end it with bond, direct, block or link NAME")]
    NoAction,
    /// Not an action.
    #[error("`{0}` is not an action; use bond, direct, block or link NAME")]
    Action(String),
    /// Not the name of a link.
    #[error("`{0}` is not the name of a link; it has 1 to 15 characters (`ip link` shows them)")]
    Link(String),
    /// Not a condition.
    #[error(
        "`{0}` is not a condition; use domain=, to=, port=, protocol=, user=, cgroup= or device="
    )]
    Condition(String),
    /// A condition appears twice.
    #[error("`{0}=` stands twice; write its values as a list: {0}=A,B")]
    Twice(String),
    /// A condition without a value.
    #[error("the condition `{0}` has no value")]
    NoValue(String),
    /// Not a domain.
    #[error("`{0}` is not a domain; write example.org, and names with other letters as xn--...")]
    Domain(String),
    /// Not a network.
    #[error("`{0}` is not a network; write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")]
    Network(String),
    /// Not a list of ports.
    #[error(transparent)]
    Ports(#[from] ClassRuleError),
    /// Not a protocol.
    #[error("`{0}` is not a protocol; use tcp, udp or icmp")]
    Protocol(String),
    /// A port for ICMP, which has none.
    #[error("icmp has no ports; leave out port= or protocol=")]
    PortsOfIcmp,
    /// Not a user.
    #[error("`{0}` is not a user; write a name or a number")]
    User(String),
    /// Not a control group.
    #[error("`{0}` is not a control group; write its path, for example /system.slice/x.service")]
    Cgroup(String),
    /// Not a device.
    #[error("`{0}` is not a device; write its address, or its MAC as 02:00:00:00:00:01")]
    Device(String),
    /// Conditions that no traffic meets together.
    #[error("user= and cgroup= are of this machine, and device= of another one; use one kind")]
    BothSides,
    /// No rule has the id.
    #[error("no rule has the id {0} (`sumlink route list` shows them)")]
    NoSuchRule(u64),
    /// The rule is in the configuration file.
    #[error("the rule {0} is in the configuration file; remove it there")]
    Configured(u64),
    /// Too many rules.
    #[error("there are {0} rules added at run time; remove some, or write lists of values")]
    TooMany(usize),
    /// There is no file for kept rules.
    #[error(
        "rules cannot be kept: set `kept_rules` in [gateway], or start the service with a state \
             directory"
    )]
    NoFile,
    /// The file with kept rules cannot be read or written.
    #[error("the kept rules in {path}: {reason}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}
