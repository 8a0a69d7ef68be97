//! The link budget: received power of each sector of a client at the access point, and in reverse.

use crate::channel::{Channel, Pose};
use crate::codebook::Codebook;
use crate::error::{MmwaveError, within};
use crate::geometry::{Direction, Orientation, Turn};
use crate::units::{decibels, linear, noise_dbm};

/// One end of the link.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Position and orientation.
    pub pose: Pose,
    /// Its sectors.
    pub codebook: Codebook,
    /// Arrays that share one RF chain, spaced evenly about the vertical; the first faces the
    /// device's direction.
    pub panels: usize,
    /// Maximum transmit power in dBm, without antenna gains.
    pub power_dbm: f64,
}

impl Device {
    /// Number of sectors of all panels.
    pub fn sectors(&self) -> usize {
        self.codebook.sectors() * self.panels
    }

    /// Orientation of a panel.
    fn turn(&self, panel: usize) -> Turn {
        let turn = core::f64::consts::TAU * panel as f64 / self.panels as f64;
        let orientation = Orientation {
            yaw: self.pose.orientation.yaw + turn,
            ..self.pose.orientation
        };
        orientation.turn()
    }

    /// Gain of one sector as a function of the direction in the room.
    fn gain_of(&self, sector: usize) -> impl Fn(Direction) -> f64 + '_ {
        let size = self.codebook.sectors();
        let turn = self.turn(sector / size);
        move |direction| {
            self.codebook
                .gain(sector % size, turn.local(direction.unit()))
        }
    }
}

/// A device with the directions of rays relative to its panels.
struct Panels<'a> {
    codebook: &'a Codebook,
    turns: Vec<Turn>,
    /// The direction of a ray relative to each panel.
    seen: Vec<Direction>,
}

impl<'a> Panels<'a> {
    fn new(device: &'a Device) -> Self {
        Self {
            codebook: &device.codebook,
            turns: (0..device.panels).map(|panel| device.turn(panel)).collect(),
            seen: Vec::with_capacity(device.panels),
        }
    }

    /// Sets the next ray, by its direction in the room.
    fn look(&mut self, direction: Direction) {
        let unit = direction.unit();
        self.seen.clear();
        self.seen
            .extend(self.turns.iter().map(|turn| turn.local(unit)));
    }

    /// Gain of the quasi-omni pattern: of the panel with the highest gain there.
    fn quasi_omni(&self) -> f64 {
        let each = self.seen.iter();
        each.map(|local| self.codebook.quasi_omni(*local))
            .fold(0.0, f64::max)
    }

    /// Adds `factor` times the gain of every sector to its sum, panel by panel.
    fn add_gains(&self, factor: f64, sums: &mut [f64]) {
        let panels = sums.chunks_mut(self.codebook.sectors());
        for (local, sums) in self.seen.iter().zip(panels) {
            self.codebook.add_gains(*local, factor, sums);
        }
    }
}

/// Bandwidth and noise of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receiver {
    /// Bandwidth in hertz.
    pub bandwidth_hz: f64,
    /// In dB.
    pub noise_figure_db: f64,
}

impl Receiver {
    /// The thesis' cell: 2 GHz, 7 dB (section 3.3.2).
    pub const THESIS: Self = Self {
        bandwidth_hz: 2e9,
        noise_figure_db: 7.0,
    };

    /// Its noise in dBm.
    ///
    /// # Errors
    ///
    /// An invalid bandwidth or noise figure.
    pub fn noise_dbm(&self) -> Result<f64, MmwaveError> {
        noise_dbm(self.bandwidth_hz, self.noise_figure_db)
    }
}

/// Gains of sweeps over a channel in dB, received over transmitted power: the path including both
/// antennas.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweeps {
    /// For every sector of the client, received by the access point's quasi-omni pattern (A-BFT).
    pub client_db: Vec<f64>,
    /// For every sector of the access point, received by the client's quasi-omni pattern (BTI).
    pub ap_db: Vec<f64>,
}

impl Sweeps {
    /// Sweeps of both ends.
    pub fn new(channel: &Channel, ap: &Device, client: &Device) -> Self {
        let mut up = vec![0.0; client.sectors()];
        let mut down = vec![0.0; ap.sectors()];
        let (mut at_ap, mut at_client) = (Panels::new(ap), Panels::new(client));
        for ray in &channel.rays {
            at_ap.look(ray.at_ap);
            at_client.look(ray.at_client);
            at_client.add_gains(ray.gain * at_ap.quasi_omni(), &mut up);
            at_ap.add_gains(ray.gain * at_client.quasi_omni(), &mut down);
        }
        let db = |all: Vec<f64>| all.into_iter().map(decibels).collect();
        Self {
            client_db: db(up),
            ap_db: db(down),
        }
    }

    /// The access point's strongest sector at the client, with its gain in dB.
    pub fn best_ap(&self) -> (usize, f64) {
        best(&self.ap_db)
    }

    /// The client's strongest sector at the access point.
    pub fn best_client(&self) -> (usize, f64) {
        best(&self.client_db)
    }

    /// SNR in dB at the access point of every client sector.
    pub fn client_snr(&self, power_dbm: f64, noise_dbm: f64) -> Vec<f64> {
        let snr = |gain: &f64| power_dbm + gain - noise_dbm;
        self.client_db.iter().map(snr).collect()
    }
}

/// Gain with a trained sector at both ends in dB, received over transmitted power.
pub fn pair_db(channel: &Channel, ap: (&Device, usize), client: (&Device, usize)) -> f64 {
    let (at_ap, at_client) = (ap.0.gain_of(ap.1), client.0.gain_of(client.1));
    let of_ray = |ray: &crate::channel::Ray| ray.gain * at_ap(ray.at_ap) * at_client(ray.at_client);
    decibels(channel.rays.iter().map(of_ray).sum())
}

/// Number of sectors that the access point can decode: the good-beams (K) of section 3.2.1.
pub fn good_beams(snr_db: &[f64], min_db: f64) -> usize {
    snr_db.iter().filter(|snr| **snr >= min_db).count()
}

/// SNRs scaled to `gamma_db` for the best sector: ideal power control without a limit.
///
/// # Errors
///
/// A gamma outside of -20 to 60 dB.
pub fn levelled(snr_db: &[f64], gamma_db: f64) -> Result<Vec<f64>, MmwaveError> {
    let gamma = within("gamma in dB", gamma_db, (-20.0, 60.0), "from -20 to 60")?;
    let (_, most) = best(snr_db);
    Ok(snr_db.iter().map(|snr| snr - most + gamma).collect())
}

/// The strongest of several powers in dB, with its index; the first with negative infinity if there
/// are none.
pub(crate) fn best(all: &[f64]) -> (usize, f64) {
    let strongest = all.iter().copied().enumerate();
    strongest.fold((0, f64::NEG_INFINITY), |best, next| {
        if next.1 > best.1 { next } else { best }
    })
}

/// Sum of powers in dB.
pub fn sum_db(powers: impl IntoIterator<Item = f64>) -> f64 {
    decibels(powers.into_iter().map(linear).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Ray;
    use crate::geometry::Point;

    fn device(point: Point, at: Point, panels: usize) -> Device {
        Device {
            pose: Pose::looking(point, at, 0.0),
            codebook: Codebook::thesis(),
            panels,
            power_dbm: 20.0,
        }
    }

    fn direct(ap: Point, client: Point) -> Channel {
        let ray = Ray {
            at_ap: ap.direction_to(client),
            at_client: client.direction_to(ap),
            gain: linear(-80.0),
            delay_ns: 0.0,
            cluster: 0,
        };
        Channel {
            los: true,
            rays: vec![ray],
        }
    }

    #[test]
    fn a_direct_ray_has_element_gains_and_at_most_the_array_gain() {
        let (ap, client) = (Point::new(0.0, 0.0, 1.0), Point::new(5.0, 0.0, 1.0));
        let channel = direct(ap, client);
        let (ap, client) = (device(ap, client, 1), device(client, ap, 1));
        let sweeps = Sweeps::new(&channel, &ap, &client);
        // Two elements of 8 dBi, and a beam between -4.5 and 0 dB of the array's 15 dB, less the
        // rounding of its shifters.
        let (sector, gain) = sweeps.best_client();
        assert!(
            (-80.0 + 16.0 + 4.5..=-80.0 + 16.0 + 15.05).contains(&gain),
            "{gain}"
        );
        assert_eq!(sweeps.best_client(), sweeps.best_ap());
        let pair = pair_db(&channel, (&ap, sector), (&client, sector));
        assert!((pair - (2.0 * gain + 80.0 - 16.0)).abs() < 1e-6);
        let snr = sweeps.client_snr(20.0, -74.0)[sector];
        assert!((snr - (gain + 94.0)).abs() < 1e-9);
    }

    #[test]
    fn three_panels_cover_all_directions() {
        let (ap, client) = (Point::new(0.0, 0.0, 1.0), Point::new(5.0, 0.0, 1.0));
        let channel = direct(ap, client);
        let other = device(client, ap, 1);
        let gain = |panels, turned: f64| {
            let mut ap = device(ap, client, panels);
            ap.pose.orientation.yaw = turned.to_radians();
            assert_eq!(ap.sectors(), 36 * panels);
            Sweeps::new(&channel, &ap, &other).best_ap().1
        };
        for turned in [0.0, 60.0, 120.0, 180.0, -100.0] {
            // At the edge of a panel an element is 10 dB weaker than straight ahead.
            assert!(gain(3, 0.0) - gain(3, turned) < 13.0, "{turned}");
        }
        assert!(gain(1, 0.0) - gain(1, 180.0) > 25.0);
    }

    #[test]
    fn leveling_gives_the_best_sector_gamma() {
        let levelled = levelled(&[3.0, 20.0, -40.0], 4.0).unwrap();
        assert_eq!(levelled, [-13.0, 4.0, -56.0]);
        assert_eq!(good_beams(&levelled, 1.0), 1);
        assert!(super::levelled(&[1.0], f64::NAN).is_err());
        assert_eq!(best(&[]), (0, f64::NEG_INFINITY));
        assert!((sum_db([0.0, 0.0]) - 3.0103).abs() < 1e-4);
    }

    #[test]
    fn the_cell_of_the_thesis_has_minus_74_dbm() {
        assert!((Receiver::THESIS.noise_dbm().unwrap() - -74.0).abs() < 0.02);
    }
}
