//! Round trips, and texts of other protocols.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Debug;

type Decoded<T> = Result<Option<(T, usize)>, MessageError>;

/// A message survives encoding and decoding, whatever follows it, and no prefix of it decodes
/// as a message.
fn survives_a_round_trip<T: Debug + PartialEq>(
    message: T,
    encode: impl Fn(&T, &mut Vec<u8>),
    decode: impl Fn(&[u8]) -> Decoded<T>,
    tail: &[u8],
) -> Result<(), TestCaseError> {
    let mut bytes = Vec::new();
    encode(&message, &mut bytes);
    let length = bytes.len();
    prop_assert!(length <= MAX_MESSAGE);
    for cut in 0..length {
        prop_assert_eq!(decode(&bytes[..cut]), Ok(None));
    }
    bytes.extend_from_slice(tail);
    prop_assert_eq!(decode(&bytes), Ok(Some((message, length))));
    Ok(())
}

fn any_address() -> impl Strategy<Value = Address> {
    prop_oneof![
        any::<IpAddr>().prop_map(Address::Ip),
        vec(any::<u8>(), 0..=255).prop_map(Address::Name),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    (any::<u8>(), any_address(), any::<u16>()).prop_map(|(command, address, port)| Request {
        command: Command::from_number(command),
        address,
        port,
    })
}

proptest! {
    #[test]
    fn greetings_survive_a_round_trip(
        methods in vec(any::<u8>(), 0..=255),
        tail in vec(any::<u8>(), 0..9),
    ) {
        survives_a_round_trip(Greeting { methods }, Greeting::encode, Greeting::decode, &tail)?;
    }

    #[test]
    fn credentials_survive_a_round_trip(
        username in vec(any::<u8>(), 0..=255),
        password in vec(any::<u8>(), 0..=255),
        tail in vec(any::<u8>(), 0..9),
    ) {
        let credentials = Credentials { username, password };
        survives_a_round_trip(credentials, Credentials::encode, Credentials::decode, &tail)?;
    }

    #[test]
    fn requests_survive_a_round_trip(request in any_request(), tail in vec(any::<u8>(), 0..9)) {
        survives_a_round_trip(request, Request::encode, Request::decode, &tail)?;
    }

    #[test]
    fn headers_of_datagrams_survive_a_round_trip(
        fragment in any::<u8>(),
        address in any_address(),
        port in any::<u16>(),
        tail in vec(any::<u8>(), 0..9),
    ) {
        let header = DatagramHeader { fragment, address, port };
        if let Ok(target) = header.target() {
            let again = DatagramHeader::from(&target).target();
            prop_assert_eq!(again, Ok(target));
        }
        let (encode, decode) = (DatagramHeader::encode, DatagramHeader::decode);
        survives_a_round_trip(header, encode, decode, &tail)?;
    }

    #[test]
    fn no_bytes_panic(first in 0..7u8, rest in vec(any::<u8>(), 0..600)) {
        let bytes = [&[first][..], &rest].concat();
        let _ = Greeting::decode(&bytes);
        let _ = Credentials::decode(&bytes);
        if let Ok(Some((header, _))) = DatagramHeader::decode(&bytes) {
            let _ = header.target();
        }
        if let Ok(Some((request, _))) = Request::decode(&bytes) {
            let _ = request.target();
        }
    }
}

#[test]
fn other_protocols_are_recognized_by_their_first_byte() {
    let error = |bytes: &[u8]| Greeting::decode(bytes).unwrap_err();
    assert_eq!(
        error(b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00"),
        MessageError::Socks4
    );
    assert_eq!(error(b"GET / HTTP/1.1"), MessageError::Http);
    assert_eq!(error(b"CONNECT a:1"), MessageError::Http);
    assert_eq!(error(b"\x16\x03\x01"), MessageError::Tls);
    assert_eq!(error(b"\x00"), MessageError::Version(0));
    assert_eq!(
        Request::decode(b"\x05\x01\x00\x02"),
        Err(MessageError::AddressType(2))
    );
}

#[test]
fn a_reply_has_the_address_for_datagrams() {
    let reply = |address: &str| Reply::Succeeded.encode_with(address.parse().unwrap());
    assert_eq!(reply("127.0.0.1:258"), [5, 0, 0, 1, 127, 0, 0, 1, 1, 2]);
    let mut v6 = [0; 22];
    v6[..4].copy_from_slice(&[5, 0, 0, 4]);
    v6[19..].copy_from_slice(&[1, 1, 2]);
    assert_eq!(reply("[::1]:258"), v6);
}

#[test]
fn the_first_acceptable_method_is_taken() {
    let method = |methods: &[u8]| {
        Greeting {
            methods: methods.to_vec(),
        }
        .method(false)
    };
    assert_eq!(method(&[2, 0]), Method::None);
    assert_eq!(method(&[1, 2]), Method::Credentials);
    assert_eq!(method(&[1, 3]), Method::NoneAcceptable);
    assert_eq!(method(&[]), Method::NoneAcceptable);
}

#[test]
fn a_name_that_is_an_address_becomes_one() {
    let target = |name: &str, port| {
        let address = Address::Name(name.as_bytes().to_vec());
        Request {
            command: Command::Connect,
            address,
            port,
        }
        .target()
    };
    for (name, text) in [
        ("192.0.2.7", "192.0.2.7:80"),
        ("2001:db8::1", "[2001:db8::1]:80"),
        ("[2001:db8::1]", "[2001:db8::1]:80"),
        ("example.org", "example.org:80"),
    ] {
        assert_eq!(target(name, 80).unwrap(), text.parse().unwrap());
    }
    assert_eq!(target("example.org", 0), Err(TargetError::BadPort));
    assert_eq!(target("", 80), Err(TargetError::BadHost));
    assert_eq!(target("a\0b", 80), Err(TargetError::BadHost));
}
