//! Targets as OPEN frames and command lines carry them: both forms survive a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sumlink_transport::target::Target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(target) = Target::decode(bytes) {
        comes_back(&target);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(target) = text.parse::<Target>()
    {
        comes_back(&target);
    }
});

fn comes_back(target: &Target) {
    assert_eq!(Target::decode(&target.encode()).as_ref(), Ok(target));
    assert_eq!(target.to_string().parse().as_ref(), Ok(target));
}
