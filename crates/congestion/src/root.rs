//! Roots that are identical on every machine: the standard library's `cbrt` depends on the
//! platform.

/// The cube root of a finite nonnegative number, to the last bits.
pub(crate) fn cube_root(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    // Dividing the exponent by three gives a guess within a few percent; each Newton step doubles
    // its digits.
    let mut root = f64::from_bits(x.to_bits() / 3 + 0x2A9F_7625_0000_0000);
    for _ in 0..5 {
        root -= (root - x / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubes_have_their_roots() {
        assert_eq!(cube_root(0.0), 0.0);
        for root in [1e-6, 0.1, 0.5, 1.0, 2.0, 3.0, 4.217, 10.0, 1234.5, 1e6] {
            let found = cube_root(root * root * root);
            assert!((found / root - 1.0).abs() < 1e-14, "{root}: {found}");
        }
    }
}
