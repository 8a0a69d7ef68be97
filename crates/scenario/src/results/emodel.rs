//! The quality of a call by the E-model (ITU-T Recommendation G.107, 06/2015).
//!
//! With the default values of G.107, table 2, and neither delay nor packet loss, the transmission
//! rating is 93.2 (clause 7.7). Two impairments of a network are subtracted from it:
//!
//! ```text
//! R = 93.2 - Idd - Ie,eff
//! ```
//!
//! Echoes are taken as perfectly cancelled, so that Id consists of Idd, the absolute delay. The
//! codec is G.711 with packet loss concealment: ITU-T G.113 (11/2007), appendix I, table I.2 gives
//! Ie = 0 and Bpl = 25.1 for losses that are independent of each other (BurstR = 1).

/// The rating with all default values of G.107.
const DEFAULT_RATING: f64 = 93.2;
/// Equipment impairment factor Ie of G.711.
const EQUIPMENT_IMPAIRMENT: f64 = 0.0;
/// Packet-loss robustness factor Bpl of G.711 with packet loss concealment.
const LOSS_ROBUSTNESS: f64 = 25.1;
/// The delay from which on Idd grows, in milliseconds: mT for the default sensitivity.
const UNNOTICED_DELAY_MS: f64 = 100.0;
/// The best score that the mapping of annex B gives.
const BEST_SCORE: f64 = 4.5;

/// The transmission rating R for a one-way delay from mouth to ear in milliseconds, and the part of
/// the packets, 0..=1, that were not played. Not below 0.
pub fn rating(delay_ms: f64, loss: f64) -> f64 {
    (DEFAULT_RATING - delay_impairment(delay_ms) - loss_impairment(loss)).max(0.0)
}

/// The mean opinion score of a rating, 1 to 4.5 (G.107, annex B, equation B-4).
pub fn mean_opinion_score(rating: f64) -> f64 {
    if rating >= 100.0 {
        return BEST_SCORE;
    }
    let rating = rating.max(0.0);
    let score = 1.0 + 0.035 * rating + rating * (rating - 60.0) * (100.0 - rating) * 7e-6;
    // The polynomial falls slightly below 1 for the smallest ratings.
    score.clamp(1.0, BEST_SCORE)
}

/// Idd: equations 7-27 and 7-28, for the default sensitivity sT = 1.
fn delay_impairment(delay_ms: f64) -> f64 {
    if delay_ms.is_nan() || delay_ms <= UNNOTICED_DELAY_MS {
        return 0.0;
    }
    let x = (delay_ms / UNNOTICED_DELAY_MS).log2();
    let root = |value: f64| (1.0 + value.powi(6)).powf(1.0 / 6.0);
    25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0)
}

/// Ie,eff: equation 7-29 with BurstR = 1.
fn loss_impairment(loss: f64) -> f64 {
    let percent = loss.clamp(0.0, 1.0) * 100.0;
    EQUIPMENT_IMPAIRMENT + (95.0 - EQUIPMENT_IMPAIRMENT) * percent / (percent + LOSS_ROBUSTNESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64, within: f64) {
        assert!(
            (value - expected).abs() <= within,
            "{value}, not {expected}"
        );
    }

    #[test]
    fn a_perfect_line_has_the_default_rating() {
        close(rating(0.0, 0.0), 93.2, 1e-9);
        close(rating(100.0, 0.0), 93.2, 1e-9);
        // G.107, annex B: the score of the default values.
        close(mean_opinion_score(93.2), 4.41, 0.005);
    }

    #[test]
    fn delay_and_loss_cost_what_the_recommendation_says() {
        // x = 1 and x = 2: the terms of equation 7-27 by hand.
        close(delay_impairment(200.0), 3.04, 0.01);
        close(delay_impairment(400.0), 24.0, 0.5);
        // A loss of Bpl percent costs half of 95.
        close(loss_impairment(0.251), 47.5, 1e-9);
        close(loss_impairment(0.01), 95.0 / 26.1, 1e-9);
        close(rating(0.0, 0.01), 93.2 - 95.0 / 26.1, 1e-9);
    }

    #[test]
    fn scores_stay_in_range_and_grow_with_the_rating() {
        let scores: Vec<f64> = (-10..=110)
            .map(|r| mean_opinion_score(f64::from(r)))
            .collect();
        assert!(scores.iter().all(|score| (1.0..=4.5).contains(score)));
        assert!(scores.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(mean_opinion_score(rating(f64::MAX, 1.0)), 1.0);
        close(mean_opinion_score(60.0), 3.1, 1e-9);
    }
}
