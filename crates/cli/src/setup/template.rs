//! The text of new configurations: the commented examples of the packages with values filled in.

use std::net::SocketAddr;
use std::path::Path;

use sumlink_transport::PublicKey;

/// The commented example of a client.
pub(crate) const CLIENT: &str = include_str!("../../../../packaging/client.toml");

/// The commented example of a server.
pub(crate) const SERVER: &str = include_str!("../../../../packaging/server.toml");

/// Values of a client's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientValues<'a> {
    /// HOST:PORT of the server.
    pub(crate) server: &'a str,
    pub(crate) server_key: &'a PublicKey,
    /// HOST:PORT and keys of other servers with the same clients.
    pub(crate) others: &'a [(String, PublicKey)],
    /// The key file, which is beside the configuration.
    pub(crate) key: &'a Path,
    /// The name that the server has for this client, if it is known.
    pub(crate) name: Option<&'a str>,
    /// Names and globs of interfaces; none means all of them.
    pub(crate) links: &'a [String],
    /// The SOCKS5 entry, unless it is that of the example.
    pub(crate) socks: Option<SocketAddr>,
    /// Whether the file names a control socket beside it.
    pub(crate) has_socket: bool,
}

/// Values of a server's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerValues<'a> {
    pub(crate) listen: SocketAddr,
    /// The key file, which is beside the configuration.
    pub(crate) key: &'a Path,
    /// Clients that may connect.
    pub(crate) authorize: &'a [PublicKey],
    /// The store of clients.
    pub(crate) store: Option<&'a str>,
    /// HOST:PORT of the server in invitations.
    pub(crate) addresses: &'a [String],
    /// Whether the file names a control socket beside it.
    pub(crate) has_socket: bool,
}

impl ClientValues<'_> {
    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        let name = self.name.map_or_else(String::new, |name| {
            format!("# The server knows this client as {name}.\n")
        });
        let others = self.others.iter();
        let servers = others.clone().map(|(address, _)| quoted(address));
        let keys = others.clone().map(|(_, key)| quoted(&key.to_string()));
        let server = one_or_more(quoted(self.server), servers);
        let has_other_key = others.clone().any(|(_, key)| key != self.server_key);
        // One key suffices if all servers have it.
        let keys = keys.filter(|_| has_other_key);
        let server_key = one_or_more(quoted(&self.server_key.to_string()), keys);
        let mut values = vec![
            (
                "server = \"SERVER-HOST:7443\"\n",
                format!("server = {server}\n"),
            ),
            (
                "server_key = \"SERVER-PUBLIC-KEY\"\n",
                format!("server_key = {server_key}\n"),
            ),
            (
                "# This client's own key: sumlink keygen --out client.key\nkey = \"client.key\"\n",
                format!(
                    "# This client's own key.\n{name}key = {}\n",
                    quoted(&file_name(self.key))
                ),
            ),
        ];
        if let Some(socks) = self.socks {
            values.push((
                "socks = \"127.0.0.1:1080\"\n",
                format!("socks = \"{socks}\"\n"),
            ));
        }
        if self.has_socket {
            values.push(("#control = \"client.sock\"\n", socket_line(self.key)));
        }
        if !self.links.is_empty() {
            let block = |link: &String| format!("[[link]]\nname = {}\n\n", quoted(link));
            let blocks: String = self.links.iter().map(block).collect();
            values.push(("links = \"auto\"\n", "#links = \"auto\"\n".to_owned()));
            values.push(("#[[link]]\n#name = \"wlan0\"\n#\n", blocks));
        }
        filled(CLIENT, &values)
    }
}

impl ServerValues<'_> {
    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        let mut values = vec![
            (
                "listen = \"[::]:7443\"\n",
                format!("listen = \"{}\"\n", self.listen),
            ),
            (
                "# This server's own key: sumlink keygen --out server.key\nkey = \"server.key\"\n",
                format!(
                    "# This server's own key.\nkey = {}\n",
                    quoted(&file_name(self.key))
                ),
            ),
        ];
        if self.has_socket {
            values.push(("#control = \"server.sock\"\n", socket_line(self.key)));
        }
        let blocks: Vec<String> = self
            .authorize
            .iter()
            .zip(1..)
            .map(|(key, number)| {
                format!("[[client]]\nkey = \"{key}\"\nname = \"authorized-{number}\"\n")
            })
            .collect();
        let blocks = match blocks.is_empty() {
            true => "#[[client]]\n#key = \"CLIENT-PUBLIC-KEY\"\n#name = \"laptop\"\n".to_owned(),
            false => blocks.join("\n"),
        };
        values.push((
            "[[client]]\nkey = \"CLIENT-PUBLIC-KEY\"\nname = \"laptop\"\n",
            blocks,
        ));
        if let Some(store) = self.store {
            values.push((
                "#[clients]\n#store = \"clients.db\"\n",
                format!("[clients]\nstore = {}\n", quoted(store)),
            ));
            if !self.addresses.is_empty() {
                let all: Vec<String> = self.addresses.iter().map(|text| quoted(text)).collect();
                values.push((
                    "#address = [\"vpn.example.org:7443\"]\n",
                    format!("address = [{}]\n", all.join(", ")),
                ));
            }
        }
        filled(SERVER, &values)
    }
}

/// The example with these lines in place of others; each of them occurs once.
fn filled(example: &str, values: &[(&str, String)]) -> String {
    let text = example.to_owned();
    values.iter().fold(text, |text, (placeholder, value)| {
        debug_assert!(text.contains(placeholder), "{placeholder}");
        text.replacen(placeholder, value, 1)
    })
}

/// The line of a control socket beside the key, with its name.
fn socket_line(key: &Path) -> String {
    format!(
        "control = {}\n",
        quoted(&file_name(&key.with_extension("sock")))
    )
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A text in TOML.
/// A value, or a list if there are further ones.
fn one_or_more(first: String, others: impl Iterator<Item = String>) -> String {
    let others: Vec<String> = others.collect();
    match others.is_empty() {
        true => first,
        false => format!("[{first}, {}]", others.join(", ")),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32]).unwrap()
    }

    fn parsed(text: &str) -> toml::Table {
        text.parse().unwrap()
    }

    #[test]
    fn the_file_of_a_client_has_the_servers_values_and_all_comments() {
        let server_key = key(7);
        let text = ClientValues {
            server: "[2001:db8::7]:443",
            server_key: &server_key,
            others: &[],
            key: Path::new("/etc/sumlink/home.key"),
            name: Some("laptop"),
            links: &[],
            socks: None,
            has_socket: false,
        }
        .text();
        let table = parsed(&text);
        assert_eq!(table["server"].as_str(), Some("[2001:db8::7]:443"));
        assert_eq!(table["server_key"].as_str(), Some(&*server_key.to_string()));
        assert_eq!(table["key"].as_str(), Some("home.key"));
        assert_eq!(table["socks"].as_str(), Some("127.0.0.1:1080"));
        assert_eq!(table["links"].as_str(), Some("auto"));
        assert!(!table.contains_key("control"));
        assert!(text.contains("as laptop.\n"));
        assert!(!text.contains("SERVER-"), "a placeholder is left");
        assert!(text.lines().count() >= CLIENT.lines().count());
    }

    #[test]
    fn the_file_of_a_client_has_all_servers() {
        let text = |others: &[(String, PublicKey)]| {
            let values = ClientValues {
                server: "a:1",
                server_key: &key(7),
                others,
                key: Path::new("home.key"),
                name: None,
                links: &[],
                socks: None,
                has_socket: false,
            };
            parsed(&values.text())
        };
        let strings = |value: &toml::Value| -> Vec<String> {
            let values = value.as_array().unwrap().iter();
            values.map(|v| v.as_str().unwrap().to_owned()).collect()
        };
        let table = text(&[("b:2".to_owned(), key(9))]);
        assert_eq!(strings(&table["server"]), ["a:1", "b:2"]);
        assert_eq!(
            strings(&table["server_key"]),
            [7, 9].map(|n| key(n).to_string())
        );
        // One key suffices if all servers have it.
        let table = text(&[("b:2".to_owned(), key(7))]);
        assert_eq!(strings(&table["server"]), ["a:1", "b:2"]);
        assert_eq!(table["server_key"].as_str(), Some(&*key(7).to_string()));
    }

    #[test]
    fn the_file_of_a_client_has_links_entry_and_socket() {
        let text = ClientValues {
            server: "vpn.example.org:7443",
            server_key: &key(7),
            others: &[],
            key: Path::new("home.key"),
            name: None,
            links: &["wlan0".to_owned(), "wwan*".to_owned()],
            socks: Some("127.0.0.1:1081".parse().unwrap()),
            has_socket: true,
        }
        .text();
        let table = parsed(&text);
        assert_eq!(table["socks"].as_str(), Some("127.0.0.1:1081"));
        assert_eq!(table["control"].as_str(), Some("home.sock"));
        assert!(!table.contains_key("links"));
        let links = table["link"].as_array().unwrap();
        let names: Vec<&str> = links
            .iter()
            .map(|link| link["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["wlan0", "wwan*"]);
        assert!(table.contains_key("session"), "later tables are intact");
        assert!(links.iter().all(|link| link.as_table().unwrap().len() == 1));
    }

    #[test]
    fn the_file_of_a_server_has_clients_and_store() {
        let text = ServerValues {
            listen: "192.0.2.1:443".parse().unwrap(),
            key: Path::new("/etc/sumlink/server.key"),
            authorize: &[key(7), key(9)],
            store: Some("/var/lib/sumlink-server/clients.db"),
            addresses: &["vpn.example.org:443".to_owned()],
            has_socket: true,
        }
        .text();
        let table = parsed(&text);
        assert_eq!(table["listen"].as_str(), Some("192.0.2.1:443"));
        assert_eq!(table["key"].as_str(), Some("server.key"));
        assert_eq!(table["control"].as_str(), Some("server.sock"));
        let clients = table["client"].as_array().unwrap();
        assert_eq!(clients.len(), 2);
        assert_eq!(clients[1]["key"].as_str(), Some(&*key(9).to_string()));
        let store = table["clients"].as_table().unwrap();
        assert_eq!(
            store["store"].as_str(),
            Some("/var/lib/sumlink-server/clients.db")
        );
        let addresses = store["address"].as_array().unwrap();
        assert_eq!(addresses[0].as_str(), Some("vpn.example.org:443"));
        assert!(!text.contains("CLIENT-PUBLIC-KEY"));
    }

    #[test]
    fn a_server_without_clients_keeps_the_example_as_a_comment() {
        let text = ServerValues {
            listen: "[::]:7443".parse().unwrap(),
            key: Path::new("server.key"),
            authorize: &[],
            store: None,
            addresses: &[],
            has_socket: false,
        }
        .text();
        let table = parsed(&text);
        assert!(!table.contains_key("client") && !table.contains_key("clients"));
        assert!(!table.contains_key("control"));
        assert!(table.contains_key("egress") && table.contains_key("limits"));
        assert_eq!(text.lines().count(), SERVER.lines().count());
    }
}
