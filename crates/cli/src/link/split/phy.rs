//! Parses the output of `iw`: the number of simultaneous stations and channels of a card.

/// A limit on simultaneous interfaces (NL80211_ATTR_INTERFACE_COMBINATIONS).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Combination {
    /// Maximum number of stations.
    stations: u32,
    /// Maximum number of interfaces of all types.
    total: u32,
    /// Maximum number of channels.
    channels: u32,
}

/// All limits of a card; a set of interfaces must satisfy one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Combinations(Vec<Combination>);

/// Reads the card's number from the output of `iw dev NAME info`.
pub(super) fn number(info: &str) -> Option<u32> {
    let mut words = info.split_whitespace();
    words.find(|word| *word == "wiphy")?;
    words.next()?.parse().ok()
}

impl Combinations {
    /// Parses the output of `iw phy NAME info`.
    pub(super) fn parse(info: &str) -> Self {
        let mut lines = info.lines().map(str::trim);
        if !lines.any(|line| line.starts_with("valid interface combinations")) {
            return Self::default();
        }
        // Each combination begins with a star and may continue on the next line; the block ends
        // with the next heading.
        let mut texts: Vec<String> = Vec::new();
        for line in lines {
            if let Some(begin) = line.strip_prefix("* ") {
                texts.push(begin.to_owned());
            } else if let (true, Some(text)) = (line.contains("<="), texts.last_mut()) {
                text.push(' ');
                text.push_str(line);
            } else {
                break;
            }
        }
        Self(texts.iter().map(|text| combination(text)).collect())
    }

    /// Maximum number of simultaneous stations; 1 if the driver reports none.
    pub(super) fn stations(&self) -> u32 {
        let most = self.0.iter().map(|one| one.stations.min(one.total)).max();
        most.unwrap_or(1).max(1)
    }

    /// Channels in the combination with the most stations.
    pub(super) fn channels(&self) -> u32 {
        let best = self
            .0
            .iter()
            .max_by_key(|one| (one.stations.min(one.total), one.channels));
        best.map_or(1, |one| one.channels.max(1))
    }
}

/// Parses `#{ managed } <= 2, #{ AP, mesh point } <= 1, total <= 3, #channels <= 2`.
fn combination(text: &str) -> Combination {
    let mut found = Combination::default();
    for part in text.split("<=").zip(text.split("<=").skip(1)) {
        let (before, after) = part;
        let digits: String = after
            .trim_start()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        let limit = digits.parse().unwrap_or(0);
        let name = before.trim_end();
        if name.ends_with("total") {
            found.total = limit;
        } else if name.ends_with("#channels") {
            found.channels = limit;
        } else if let Some((_, set)) = name.rsplit_once("#{")
            && set
                .trim_end_matches('}')
                .split(',')
                .any(|kind| kind.trim() == "managed")
        {
            found.stations = found.stations.max(limit);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_card_is_read() {
        let info = "Interface wlan0\n\tifindex 3\n\twdev 0x1\n\taddr 00:11:22:33:44:55\n\ttype managed\n\twiphy 2\n";
        assert_eq!(number(info), Some(2));
        assert_eq!(number("Interface wlan0\n"), None);
    }

    #[test]
    fn the_combination_with_the_most_stations_counts() {
        let info = "\tvalid interface combinations:\n\
                    \t\t * #{ managed } <= 1, #{ AP, P2P-client, P2P-GO } <= 1, #{ P2P-device } <= 1,\n\
                    \t\t   total <= 3, #channels <= 1\n\
                    \t\t * #{ managed, P2P-client } <= 4, #{ AP } <= 1,\n\
                    \t\t   total <= 3, #channels <= 2, STA/AP BI must match\n\
                    \tHT Capability overrides:\n\t\t * MCS: ff <= 9\n";
        let combinations = Combinations::parse(info);
        assert_eq!((combinations.stations(), combinations.channels()), (3, 2));
    }

    #[test]
    fn a_driver_without_combinations_allows_one_station() {
        for info in [
            "",
            "\tinterface combinations are not supported\n\tHT Capability\n",
        ] {
            let combinations = Combinations::parse(info);
            assert_eq!((combinations.stations(), combinations.channels()), (1, 1));
        }
    }
}
