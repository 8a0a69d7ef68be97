//! `sumlink link split` and `sumlink link join`: several interfaces of one card, each of which can
//! be a link.
//!
//! A Wi-Fi card can be several stations if its driver supports it. It keeps an association with a
//! hotspot for each station and shares its air time among them. Ethernet has macvlan: one interface
//! per address behind a switch. The new interfaces carry an alias, so they are found again after a
//! restart of this program.

mod macs;
mod phy;
mod system;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::error::CliError;
use crate::output::{print, print_json};
use macs::{Mac, derived};
use phy::Combinations;
use system::{Interface, interfaces, ip, iw};

/// Longest name of an interface (IFNAMSIZ without its NUL).
const NAME_MAX: usize = 15;
/// Most interfaces that a card is split into; the derived addresses allow no more.
const MAX_PARTS: u8 = 16;

/// `sumlink link split`
#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// Interface to split; it stays and counts as the first
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// Total number of interfaces, this one included
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=i64::from(MAX_PARTS)))]
    into: u8,
    /// Kind of interface to make: stations of a Wi-Fi card, or macvlan on Ethernet
    #[arg(long, value_enum, default_value = "station")]
    kind: Kind,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `sumlink link join`
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// Interface that was split
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The kind of the new interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Further stations of a Wi-Fi card.
    Station,
    /// Interfaces with their own addresses on the same Ethernet.
    Macvlan,
}

/// An interface to make.
#[derive(Clone, Debug, PartialEq, Eq)]
struct New {
    name: String,
    mac: Mac,
}

/// Makes all the interfaces, or none.
pub(super) fn split(args: &SplitArgs) -> Result<(), CliError> {
    let parent = &args.interface;
    let all = interfaces()?;
    let found = find(&all, parent)?;
    if let Some(part) = parts(&all, parent).next() {
        return Err(refused(format!(
            "{parent} is split already ({}): sumlink link join {parent} first",
            part.name
        )));
    }
    let new = planned(found, args.into, &all)?;
    let note = match args.kind {
        Kind::Station => may_split(parent, args.into)?,
        Kind::Macvlan => may_carry_macvlan(found)?,
    };
    let mut made: Vec<&str> = Vec::new();
    for one in &new {
        if let Err(error) = make(parent, one, args.kind, &mut made) {
            for name in made.iter().rev() {
                let _ = remove(name, args.kind == Kind::Station);
            }
            return Err(error);
        }
    }
    let names: Vec<&str> = new.iter().map(|one| one.name.as_str()).collect();
    if args.json {
        let made = new
            .iter()
            .map(|one| json!({"name": one.name, "mac": one.mac.to_string()}));
        return print_json(&json!({
            "interface": parent, "made": made.collect::<Vec<_>>(), "note": note,
        }));
    }
    let note = note.map_or_else(String::new, |note| format!("; {note}"));
    print(&format!(
        "{parent} is {} links now: {parent}, {}{note}\n",
        args.into,
        names.join(", ")
    ))
}

/// Removes the interfaces made from another one; prints a note if there are none.
pub(super) fn join(args: &JoinArgs) -> Result<(), CliError> {
    let parent = &args.interface;
    let all = interfaces()?;
    let gone: Vec<&Interface> = parts(&all, parent).collect();
    if gone.is_empty() {
        find(&all, parent)?;
    }
    for part in &gone {
        remove(&part.name, part.kind != "macvlan")?;
    }
    let names: Vec<&str> = gone.iter().map(|part| part.name.as_str()).collect();
    match (args.json, names.is_empty()) {
        (true, _) => print_json(&json!({"interface": parent, "removed": names})),
        (false, true) => print(&format!("{parent} was not split\n")),
        (false, false) => print(&format!("removed {}\n", names.join(", "))),
    }
}

/// The alias that marks an interface as made from `parent`.
fn alias_of(parent: &str) -> String {
    format!("sumlink split of {parent}")
}

/// The interfaces made from `parent`.
fn parts<'a>(all: &'a [Interface], parent: &str) -> impl Iterator<Item = &'a Interface> {
    let alias = alias_of(parent);
    all.iter().filter(move |interface| interface.alias == alias)
}

fn find<'a>(all: &'a [Interface], name: &str) -> Result<&'a Interface, CliError> {
    let found = all.iter().find(|interface| interface.name == name);
    found.ok_or_else(|| refused(format!("no interface {name}; sumlink links lists them")))
}

/// Names and addresses of the new interfaces, or why they cannot be made.
fn planned(parent: &Interface, into: u8, all: &[Interface]) -> Result<Vec<New>, CliError> {
    let mac: Mac = parent.mac.parse().map_err(|()| {
        refused(format!(
            "{} has no hardware address of 6 bytes to derive others from",
            parent.name
        ))
    })?;
    (2..=into)
        .map(|number| {
            let name = format!("{}v{number}", parent.name);
            if name.len() > NAME_MAX {
                let longest = NAME_MAX - 3;
                return Err(refused(format!(
                    "{name} is too long for an interface; rename {} to at most {longest} characters", parent.name
                )));
            }
            if all.iter().any(|interface| interface.name == name) {
                return Err(refused(format!("an interface {name} exists already and was not made by sumlink")));
            }
            Ok(New { name, mac: derived(mac, number - 1) })
        })
        .collect()
}

/// Checks that the card supports this number of stations; returns a note for the user, if any.
fn may_split(parent: &str, into: u8) -> Result<Option<String>, CliError> {
    let info = iw(&["dev", parent, "info"]).map_err(|error| match error {
        CliError::Split(reason) if reason.contains("iw is not installed") => {
            CliError::Split(reason)
        }
        _ => refused(format!(
            "{parent} is not a Wi-Fi interface; --kind macvlan splits an Ethernet one"
        )),
    })?;
    let Some(number) = phy::number(&info) else {
        return Err(refused(format!("{parent}: iw does not report its card")));
    };
    let combinations = Combinations::parse(&iw(&["phy", &format!("phy{number}"), "info"])?);
    let most = combinations.stations();
    if u32::from(into) > most {
        return Err(refused(format!(
            "the driver of {parent} allows {most} station interface{} at once, not {into}",
            if most == 1 { "" } else { "s" }
        )));
    }
    Ok((combinations.channels() == 1)
        .then(|| "the card uses one channel at a time: the hotspots must share it".to_owned()))
}

/// Checks that the interface is an Ethernet one, as macvlan requires.
fn may_carry_macvlan(parent: &Interface) -> Result<Option<String>, CliError> {
    if parent.link_type != "ether" {
        return Err(refused(format!(
            "{} is not an Ethernet interface ({}), as macvlan needs",
            parent.name, parent.link_type
        )));
    }
    Ok(None)
}

/// Makes one interface and adds it to `made` as soon as it exists.
fn make<'a>(
    parent: &str,
    new: &'a New,
    kind: Kind,
    made: &mut Vec<&'a str>,
) -> Result<(), CliError> {
    let (name, mac) = (new.name.as_str(), new.mac.to_string());
    match kind {
        Kind::Station => {
            iw(&[
                "dev",
                parent,
                "interface",
                "add",
                name,
                "type",
                "managed",
                "addr",
                &mac,
            ])?;
        }
        Kind::Macvlan => {
            ip(&[
                "link", "add", "link", parent, "name", name, "address", &mac, "type", "macvlan",
                "mode", "bridge",
            ])?;
        }
    }
    made.push(name);
    ip(&["link", "set", "dev", name, "alias", &alias_of(parent)])?;
    ip(&["link", "set", "dev", name, "up"]).map(drop)
}

fn remove(name: &str, station: bool) -> Result<(), CliError> {
    match station {
        true => iw(&["dev", name, "del"]),
        false => ip(&["link", "del", "dev", name]),
    }
    .map(drop)
}

fn refused(reason: String) -> CliError {
    CliError::Split(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, alias: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            mac: "00:11:22:33:44:55".to_owned(),
            alias: alias.to_owned(),
            kind: String::new(),
            link_type: "ether".to_owned(),
        }
    }

    #[test]
    fn names_are_the_interfaces_name_and_a_number() {
        let wlan0 = interface("wlan0", "");
        let new = planned(&wlan0, 3, std::slice::from_ref(&wlan0)).unwrap();
        let names: Vec<_> = new.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["wlan0v2", "wlan0v3"]);
        let taken = [wlan0.clone(), interface("wlan0v3", "")];
        let error = planned(&wlan0, 3, &taken).unwrap_err().to_string();
        assert!(error.contains("wlan0v3 exists already"), "{error}");
        let long = interface("wlx001122334455", "");
        let error = planned(&long, 2, &[]).unwrap_err().to_string();
        assert!(error.contains("at most 12 characters"), "{error}");
    }

    #[test]
    fn only_interfaces_with_the_alias_are_parts() {
        let all = [
            interface("a", ""),
            interface("av2", &alias_of("a")),
            interface("bv2", &alias_of("b")),
        ];
        let names: Vec<_> = parts(&all, "a").map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["av2"]);
    }
}
