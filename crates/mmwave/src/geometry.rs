//! Positions and orientations of devices.

use core::f64::consts::{PI, TAU};

/// A position in meters; z is the height above the floor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Meters to the east.
    pub x: f64,
    /// Meters to the north.
    pub y: f64,
    /// Meters above the floor.
    pub z: f64,
}

impl Point {
    /// A position.
    pub fn new(x: f64, y: f64, z: f64) -> Self {
        Self { x, y, z }
    }

    /// Distance to another point in meters.
    pub fn distance(self, other: Self) -> f64 {
        self.distance_2d(other).hypot(other.z - self.z)
    }

    /// Horizontal distance to another point in meters.
    pub fn distance_2d(self, other: Self) -> f64 {
        (other.x - self.x).hypot(other.y - self.y)
    }

    /// Direction from this point to another one; an identical point is straight ahead.
    pub fn direction_to(self, other: Self) -> Direction {
        let (dx, dy, dz) = (other.x - self.x, other.y - self.y, other.z - self.z);
        Direction {
            azimuth: dy.atan2(dx),
            elevation: dz.atan2(dx.hypot(dy)),
        }
    }
}

/// A direction, in radians.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Direction {
    /// From the x axis to the y axis, in -pi..=pi.
    pub azimuth: f64,
    /// Above the horizon, in -pi/2..=pi/2.
    pub elevation: f64,
}

impl Direction {
    /// From degrees; accepts any azimuth, and elevations beyond the zenith continue on the other
    /// side.
    pub fn from_degrees(azimuth: f64, elevation: f64) -> Self {
        Self::folded(azimuth.to_radians(), elevation.to_radians())
    }

    /// Any two angles in radians as a direction.
    pub fn folded(azimuth: f64, elevation: f64) -> Self {
        let (sin, cos) = elevation.sin_cos();
        let azimuth = if cos < 0.0 { azimuth + PI } else { azimuth };
        Self {
            azimuth: wrapped(azimuth),
            elevation: sin.asin(),
        }
    }

    /// The unit vector.
    pub fn unit(self) -> [f64; 3] {
        let (sin, cos) = self.elevation.sin_cos();
        [cos * self.azimuth.cos(), cos * self.azimuth.sin(), sin]
    }

    fn of_vector([x, y, z]: [f64; 3]) -> Self {
        Self {
            azimuth: y.atan2(x),
            elevation: z.clamp(-1.0, 1.0).asin(),
        }
    }
}

/// Orientation of a device: first tilted about its own y axis, then turned about the vertical.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Orientation {
    /// Azimuth of its front, in radians.
    pub yaw: f64,
    /// Elevation of its front, in radians; negative is downwards.
    pub pitch: f64,
}

impl Orientation {
    /// Faces that direction.
    pub fn towards(direction: Direction) -> Self {
        Self {
            yaw: direction.azimuth,
            pitch: direction.elevation,
        }
    }

    /// A direction in the room relative to the device: straight ahead is azimuth 0, elevation 0.
    pub fn local(self, direction: Direction) -> Direction {
        self.turn().local(direction.unit())
    }

    /// A precomputed form for many directions.
    pub fn turn(self) -> Turn {
        Turn {
            yaw: self.yaw.sin_cos(),
            pitch: self.pitch.sin_cos(),
        }
    }
}

/// An [`Orientation`] by the sines and cosines of its angles.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    yaw: (f64, f64),
    pitch: (f64, f64),
}

impl Turn {
    /// A direction in the room, given as a unit vector, relative to the device.
    pub fn local(&self, [x, y, z]: [f64; 3]) -> Direction {
        let (sin, cos) = self.yaw;
        let (x, y) = (cos * x + sin * y, cos * y - sin * x);
        let (sin, cos) = self.pitch;
        Direction::of_vector([cos * x + sin * z, y, cos * z - sin * x])
    }
}

/// An angle in -pi..=pi.
pub fn wrapped(angle: f64) -> f64 {
    let turned = angle.rem_euclid(TAU);
    if turned > PI { turned - TAU } else { turned }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn distances_and_directions() {
        let (ap, client) = (Point::new(0.0, 0.0, 3.0), Point::new(3.0, 4.0, 1.0));
        assert_eq!(ap.distance_2d(client), 5.0);
        assert!((ap.distance(client) - 29f64.sqrt()).abs() < 1e-12);
        let down = ap.direction_to(client).elevation.to_degrees();
        assert!((down - -21.8).abs() < 0.01);
        assert_eq!(ap.direction_to(ap), Direction::default());
    }

    #[test]
    fn elevations_beyond_the_zenith_continue_on_the_other_side() {
        let direction = Direction::from_degrees(10.0, 100.0);
        assert!((direction.elevation.to_degrees() - 80.0).abs() < 1e-9);
        assert!((direction.azimuth.to_degrees() - -170.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn a_faced_direction_is_straight_ahead(
            azimuth in -179.0..179.0,
            elevation in -80.0..80.0,
        ) {
            let direction = Direction::from_degrees(azimuth, elevation);
            let seen = Orientation::towards(direction).local(direction);
            prop_assert!(seen.azimuth.abs() < 1e-6 && seen.elevation.abs() < 1e-6);
        }

        #[test]
        fn turning_keeps_angles_between_directions(
            a in -180.0..180.0, b in -180.0..180.0, c in -89.0..89.0, d in -89.0..89.0,
            yaw in -3.0..3.0, pitch in -1.5..1.5,
        ) {
            let dot = |one: Direction, other: Direction| -> f64 {
                one.unit().iter().zip(other.unit()).map(|(x, y)| x * y).sum()
            };
            let (one, other) = (Direction::from_degrees(a, c), Direction::from_degrees(b, d));
            let device = Orientation { yaw, pitch };
            let local = dot(device.local(one), device.local(other));
            prop_assert!((dot(one, other) - local).abs() < 1e-9);
        }
    }
}
