//! Messages for tests.

use std::net::IpAddr;

use crate::wire::{Name, Query, flag, kind};

/// The content of a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) flags: u16,
    pub(crate) answers: Vec<Data>,
    pub(crate) authorities: Vec<Data>,
    pub(crate) has_opt: bool,
}

/// A record. Without an owner, it belongs to the name in the question.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) owner: Option<Name>,
    pub(crate) kind: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<u8>,
}

impl Answer {
    pub(crate) fn records(records: impl IntoIterator<Item = Data>) -> Self {
        Self {
            answers: records.into_iter().collect(),
            ..Self::default()
        }
    }

    pub(crate) fn negative(code: u16, soa: Option<Data>) -> Self {
        Self {
            code,
            authorities: soa.into_iter().collect(),
            ..Self::default()
        }
    }

    pub(crate) fn with_authority(mut self, record: Data) -> Self {
        self.authorities.push(record);
        self
    }
}

impl Data {
    pub(crate) fn of(mut self, owner: &str) -> Self {
        self.owner = Some(owner.parse().unwrap());
        self
    }

    pub(crate) fn new(kind: u16, ttl: u32, data: impl Into<Vec<u8>>) -> Self {
        Self {
            owner: None,
            kind,
            ttl,
            data: data.into(),
        }
    }
}

pub(crate) fn address(text: &str, ttl: u32) -> Data {
    match text.parse().unwrap() {
        IpAddr::V4(address) => Data::new(kind::A, ttl, address.octets()),
        IpAddr::V6(address) => Data::new(kind::AAAA, ttl, address.octets()),
    }
}

pub(crate) fn alias(name: &str, ttl: u32) -> Data {
    Data::new(kind::CNAME, ttl, name.parse::<Name>().unwrap().as_bytes())
}

pub(crate) fn soa(ttl: u32, minimum: u32) -> Data {
    let mut data = b"\x02ns\0\x05admin\0".to_vec();
    for number in [1, 2, 3, 4, minimum] {
        data.extend(number.to_be_bytes());
    }
    Data::new(kind::SOA, ttl, data)
}

/// An HTTPS record with address hints.
pub(crate) fn service(hints: &[IpAddr], ttl: u32) -> Data {
    let mut data = b"\0\x01\0\0\x01\0\x03\x02h2".to_vec();
    for (key, is_v4) in [(4u16, true), (6, false)] {
        let own = hints.iter().filter(|hint| hint.is_ipv4() == is_v4);
        let value: Vec<u8> = own
            .flat_map(|hint| match hint {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            })
            .collect();
        if !value.is_empty() {
            data.extend(key.to_be_bytes());
            data.extend((value.len() as u16).to_be_bytes());
            data.extend(value);
        }
    }
    Data::new(kind::HTTPS, ttl, data)
}

/// The response to a query, with ID 0.
pub(crate) fn answer(query: &Query, answer: Answer) -> Vec<u8> {
    let question = &query.question;
    let flags = flag::RESPONSE | flag::RECURSION_AVAILABLE | answer.flags | answer.code;
    let counts = [
        answer.answers.len(),
        answer.authorities.len(),
        usize::from(answer.has_opt),
    ];
    let mut out = Vec::new();
    for word in [0, flags, 1]
        .into_iter()
        .chain(counts.map(|count| count as u16))
    {
        out.extend(word.to_be_bytes());
    }
    out.extend(question.name.as_bytes());
    out.extend(question.kind.to_be_bytes());
    out.extend(question.class.to_be_bytes());
    for record in answer.answers.iter().chain(&answer.authorities) {
        match &record.owner {
            Some(owner) => out.extend(owner.as_bytes()),
            None => out.extend([0xc0, 12]),
        }
        out.extend(record.kind.to_be_bytes());
        out.extend(1u16.to_be_bytes());
        out.extend(record.ttl.to_be_bytes());
        out.extend((record.data.len() as u16).to_be_bytes());
        out.extend(&record.data);
    }
    if answer.has_opt {
        out.extend(b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
    }
    out
}
