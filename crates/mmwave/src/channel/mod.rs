//! The channel between a client and the access point: rays, each with two directions and a gain.
//!
//! Two models generate rays: [`inh`], 3GPP TR 38.901 indoor (the thesis' reference), and [`tgad`],
//! the conference room of 802.11ad, for a few meters. [`blocking`] adds blockers.
//!
//! Powers of rays are added, not amplitudes. With 2 GHz of bandwidth, rays half a nanosecond apart
//! are resolved, and the fading between closer ones is averaged over the band.

pub mod blocking;
pub mod inh;
pub mod tgad;

use crate::geometry::{Direction, Orientation, Point};

/// One propagation path between the access point and a client, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ray {
    /// Direction at the access point, in the room.
    pub at_ap: Direction,
    /// Direction at the client, in the room.
    pub at_client: Direction,
    /// Power received between isotropic antennas over power sent.
    pub gain: f64,
    /// Delay after the first ray in nanoseconds.
    pub delay_ns: f64,
    /// Rays of a cluster are blocked together.
    pub cluster: usize,
}

/// All rays between the access point and one client.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Whether there is a line of sight.
    pub los: bool,
    /// The rays; empty if the signal is fully blocked.
    pub rays: Vec<Ray>,
}

impl Channel {
    /// Power received between isotropic antennas over power sent.
    pub fn gain(&self) -> f64 {
        self.rays.iter().map(|ray| ray.gain).sum()
    }

    /// Number of clusters.
    pub fn clusters(&self) -> usize {
        let last = self.rays.iter().map(|ray| ray.cluster).max();
        last.map_or(0, |last| last + 1)
    }

    /// The strongest ray.
    pub fn strongest(&self) -> Option<&Ray> {
        self.rays.iter().max_by(|a, b| a.gain.total_cmp(&b.gain))
    }

    /// The same channel with each cluster's power multiplied by its entry of `passes`; those
    /// without one are unchanged.
    pub fn attenuated(&self, passes: &[f64]) -> Self {
        let mut channel = self.clone();
        for ray in &mut channel.rays {
            ray.gain *= passes.get(ray.cluster).copied().unwrap_or(1.0);
        }
        channel
    }
}

/// Position and orientation of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pose {
    /// Position.
    pub point: Point,
    /// Orientation.
    pub orientation: Orientation,
}

impl Pose {
    /// Faces another point, turned away from it by an azimuth in radians.
    pub fn looking(point: Point, at: Point, away: f64) -> Self {
        let direction = point.direction_to(at);
        let orientation = Orientation {
            yaw: direction.azimuth + away,
            pitch: 0.0,
        };
        Self { point, orientation }
    }
}
