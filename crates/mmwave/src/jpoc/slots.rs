//! Required number of mini-slots and estimated number of clients (equations 3.6 to 3.9).

use crate::error::{MmwaveError, positive, within};

/// Probability that a client with K good-beams is not heard among N, with M mini-slots (eq. 3.6).
///
/// N may be a fraction; one client or fewer never fail.
///
/// # Errors
///
/// K not below M, or not above 0; N negative or not finite.
pub fn failure(good_beams: f64, clients: f64, mini_slots: u32) -> Result<f64, MmwaveError> {
    let p = busy(good_beams, mini_slots)?;
    let clients = within("contending clients", clients, (0.0, f64::MAX), "0 or more")?;
    let others = (clients - 1.0).max(0.0);
    Ok((1.0 - (1.0 - p).powf(others)).powf(good_beams))
}

/// The smallest number of mini-slots with which a client fails with at most that probability (eq.
/// 3.7).
///
/// For one client or fewer the equation divides by zero. The result is then the smallest number
/// above K, which is also the lower bound elsewhere. A number beyond `u32` saturates.
///
/// # Errors
///
/// K not above 0; N negative or not finite; a target not strictly between 0 and 1.
pub fn optimal(good_beams: f64, clients: f64, target: f64) -> Result<u32, MmwaveError> {
    let k = positive("good-beams", good_beams)?;
    let n = within("contending clients", clients, (0.0, f64::MAX), "0 or more")?;
    let range = "above 0 and below 1";
    let target = within(
        "targeted failure probability",
        target,
        (f64::MIN_POSITIVE, 1.0 - f64::EPSILON),
        range,
    )?;
    let least = k.floor() + 1.0;
    if n <= 1.0 {
        return Ok(least as u32);
    }
    // 1 - x^(1/(N-1)) = -expm1(ln x / (N-1)), which stays precise for many clients.
    let alone = (-target.powf(1.0 / k)).ln_1p() / (n - 1.0);
    let slots = k / -alone.exp_m1();
    // Rounding errors must not add a mini-slot if the equation gives an integer.
    let slots = (slots - slots * 1e-12).ceil();
    Ok(slots.max(least) as u32)
}

/// Estimated number of contenders in an A-BFT of M mini-slots with this many empty ones (eq. 3.8).
///
/// Without an empty mini-slot the equation has no value: half a mini-slot is assumed, which gives
/// the largest estimate that M mini-slots allow. If all are empty, the estimate is 0.
///
/// # Errors
///
/// K not below M, or not above 0; more empty mini-slots than mini-slots.
pub fn estimate(good_beams: f64, empty: u32, mini_slots: u32) -> Result<f64, MmwaveError> {
    let p = busy(good_beams, mini_slots)?;
    let m = f64::from(mini_slots);
    let empty = within(
        "empty mini-slots",
        f64::from(empty),
        (0.0, m),
        "at most the mini-slots",
    )?;
    // The sum avoids a result of minus zero clients.
    Ok((empty.max(0.5) / m).ln() / (-p).ln_1p() + 0.0)
}

/// Probability that a client has a good-beam in a given mini-slot: K / M.
fn busy(good_beams: f64, mini_slots: u32) -> Result<f64, MmwaveError> {
    let good_beams = positive("good-beams", good_beams)?;
    if good_beams >= f64::from(mini_slots) {
        return Err(MmwaveError::TooFewMiniSlots {
            good_beams,
            mini_slots,
        });
    }
    Ok(good_beams / f64::from(mini_slots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mini_slots_for_ten_percent_of_failure() {
        for (k, row) in [
            (
                6.0,
                [(4.0, 19), (8.0, 40), (16.0, 82), (32.0, 166), (64.0, 334)],
            ),
            (
                4.0,
                [(4.0, 17), (8.0, 36), (16.0, 75), (32.0, 153), (64.0, 307)],
            ),
        ] {
            for (n, slots) in row {
                assert_eq!(optimal(k, n, 0.1).unwrap(), slots, "K {k}, N {n}");
            }
        }
    }

    #[test]
    fn singular_cases_are_defined() {
        for n in [0.0, 0.5, 1.0] {
            assert_eq!(optimal(6.0, n, 0.1).unwrap(), 7);
            assert_eq!(failure(6.0, n, 36).unwrap(), 0.0);
        }
        assert_eq!(estimate(6.0, 36, 36).unwrap(), 0.0);
        let full = estimate(6.0, 0, 36).unwrap();
        assert!(full.is_finite() && full > estimate(6.0, 1, 36).unwrap());
        for k in [36.0, 37.0] {
            assert!(matches!(
                estimate(k, 3, 36),
                Err(MmwaveError::TooFewMiniSlots { .. })
            ));
            assert!(matches!(
                failure(k, 3.0, 36),
                Err(MmwaveError::TooFewMiniSlots { .. })
            ));
        }
        assert!(estimate(6.0, 37, 36).is_err() && estimate(0.0, 1, 36).is_err());
        for target in [0.0, 1.0, -0.1, f64::NAN] {
            assert!(optimal(6.0, 4.0, target).is_err());
        }
        assert!(optimal(6.0, -1.0, 0.1).is_err() && failure(6.0, f64::INFINITY, 36).is_err());
        assert_eq!(optimal(6.0, 1e300, 0.1).unwrap(), u32::MAX);
    }

    proptest! {
        #[test]
        fn the_optimum_keeps_the_target_and_one_less_does_not(
            k in 1.0..30.0f64, n in 1.01..200.0f64, target in 0.001..0.9f64,
        ) {
            let slots = optimal(k, n, target).unwrap();
            prop_assert!(failure(k, n, slots).unwrap() <= target * (1.0 + 1e-6));
            if f64::from(slots - 1) > k {
                prop_assert!(failure(k, n, slots - 1).unwrap() > target * (1.0 - 1e-6));
            }
        }

        #[test]
        fn the_expected_number_of_empty_mini_slots_yields_the_clients(
            k in 1.0..12.0f64,
            n in 0.0..40.0f64,
            m in 36u32..400,
        ) {
            let empty = f64::from(m) * (1.0 - k / f64::from(m)).powf(n);
            prop_assume!(empty >= 1.0);
            let around = |empty: f64| estimate(k, empty as u32, m).unwrap();
            prop_assert!(around(empty.floor()) >= n - 1e-6);
            prop_assert!(around(empty.ceil()) <= n + 1e-6);
        }

        #[test]
        fn more_empty_mini_slots_mean_fewer_clients(
            k in 1.0..30.0f64,
            m in 36u32..400,
            a: u32,
            b: u32,
        ) {
            let (a, b) = (a % (m + 1), b % (m + 1));
            let (a, b) = (estimate(k, a.min(b), m).unwrap(), estimate(k, a.max(b), m).unwrap());
            prop_assert!(a >= b && b >= 0.0);
        }
    }
}
