//! Clients that walk in a cell.
//!
//! Random waypoint: a client walks straight to a uniformly drawn point of the disc, rests there,
//! and continues to another one. It faces the access point within the cell's angle when it starts
//! and does not turn while it walks, so the access point moves through its sectors. When the access
//! point leaves the 120 degrees of its array, the client turns.
//!
//! Alternatively it turns all the time, like the thesis' robot (section 3.1), and loses sight of
//! the access point for a part of each turn.
//!
//! The robot of section 3.1 drives around a rectangle instead, and faces where it drives.
//!
//! The channel is that of 3GPP TR 38.901 at the new position with the same random numbers. Path
//! loss and the direct ray follow the client; shadowing and clusters stay the same relative to it.
//! The same random number decides about the line of sight, against the probability at the new
//! position. After 10 m, the correlation distance of 38.901's indoor office (clause 7.6.3), new
//! random numbers are drawn. There is no fading in between, because powers of rays are added.

use sumlink_link::Random;

use crate::channel::inh::{self, Office, Shape};
use crate::channel::{Channel, Pose};
use crate::codebook::HALF_COVERAGE_DEG;
use crate::error::{MmwaveError, within};
use crate::geometry::{Point, wrapped};
use crate::units::CENTRE_GHZ;

/// Correlation distance of a channel in meters (38.901, clause 7.6.3, indoor office).
pub const CORRELATION_M: f64 = 10.0;

/// Movement of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walk {
    /// Walking speed in m/s: 1.4 for a pedestrian.
    pub speed: f64,
    /// Rest at each waypoint in seconds.
    pub pause: f64,
    /// Continuous turning in degrees per second, standing or walking. 0 faces the access point at
    /// each start. A turning client loses sight of the access point for a part of each turn.
    pub turning: f64,
}

impl Walk {
    /// Whether the client moves or turns.
    pub fn moves(&self) -> bool {
        self.speed > 0.0 || self.turning > 0.0
    }

    /// A pedestrian that rests 5 s at each waypoint: our choice.
    pub const PEDESTRIAN: Self = Self {
        speed: 1.4,
        pause: 5.0,
        turning: 0.0,
    };

    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A speed outside of 0 to 50 m/s, a pause outside of 0 to 3600 s, or a turning outside of 0 to
    /// 360 degrees/s.
    pub fn checked(self) -> Result<Self, MmwaveError> {
        within("speed in m/s", self.speed, (0.0, 50.0), "from 0 to 50")?;
        within(
            "pause in seconds",
            self.pause,
            (0.0, 3600.0),
            "from 0 to 3600",
        )?;
        let range = (0.0, 360.0);
        within(
            "turning in degrees per second",
            self.turning,
            range,
            "from 0 to 360",
        )?;
        Ok(self)
    }
}

/// Area in which clients walk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ground {
    /// The access point, above the center of the disc.
    pub ap: Point,
    /// Radius of the disc in meters.
    pub radius: f64,
    /// Maximum angle between a client's direction and the access point, in radians.
    pub facing: f64,
    /// Type of office.
    pub office: Office,
}

/// The random part of a channel: the same dice give neighboring points similar channels.
#[derive(Clone, Debug)]
pub struct Dice {
    /// There is a line of sight if this is below its probability.
    chance: f64,
    rays: Random,
}

impl Dice {
    /// Draws new ones.
    pub fn throw(random: &mut Random) -> Self {
        let chance = random.next_f64();
        Self {
            chance,
            rays: random.clone(),
        }
    }

    /// Whether a point has a line of sight.
    fn sees(&self, office: Office, ap: Point, client: Point) -> Result<bool, MmwaveError> {
        Ok(self.chance < inh::los_probability(office, ap.distance_2d(client))?)
    }

    /// The channel to a point, and the generator after it.
    ///
    /// # Errors
    ///
    /// An invalid point.
    pub fn channel(
        &self,
        office: Office,
        ap: Point,
        client: Point,
    ) -> Result<(Channel, Random), MmwaveError> {
        let los = self.sees(office, ap, client)?;
        let mut random = self.rays.clone();
        let channel = inh::draw_with(los, ap, client, CENTRE_GHZ, &mut random)?;
        Ok((channel, random))
    }
}

/// A walking client.
#[derive(Clone, Debug)]
pub struct Walker {
    walk: Walk,
    ground: Ground,
    pose: Pose,
    goal: Point,
    /// Corners of its rectangle, if it drives on one, in order; the first is its goal.
    corners: Option<[Point; 4]>,
    /// Remaining seconds of rest.
    rest: f64,
    /// Meters since the dice were drawn.
    walked: f64,
    dice: Dice,
    /// Shapes without and with a line of sight from these dice, computed on demand: drawing a shape
    /// takes longer than all computations that depend on the position.
    shapes: [Option<Shape>; 2],
    random: Random,
}

impl Walker {
    /// Stands at a point and starts to walk at once, with the channel of those dice.
    pub fn new(walk: Walk, ground: Ground, pose: Pose, dice: Dice, mut random: Random) -> Self {
        let goal = ground.anywhere(pose.point.z, &mut random);
        Self {
            walk,
            ground,
            pose,
            goal,
            corners: None,
            rest: 0.0,
            walked: 0.0,
            dice,
            shapes: [None, None],
            random,
        }
    }

    /// Drives on a rectangle with these sides in meters from its place instead: the first side in
    /// its direction, then left, facing where it drives. It returns to the same channel after each
    /// round.
    pub fn on_rectangle(mut self, (length, width): (f64, f64)) -> Self {
        let (start, yaw) = (self.pose.point, self.pose.orientation.yaw);
        let at = |ahead: f64, left: f64| {
            let (sin, cos) = yaw.sin_cos();
            let (x, y) = (ahead * cos - left * sin, ahead * sin + left * cos);
            Point::new(start.x + x, start.y + y, start.z)
        };
        let corners = [at(length, 0.0), at(length, width), at(0.0, width), start];
        self.goal = corners[0];
        self.corners = Some(corners);
        self
    }

    /// Position and orientation.
    pub fn pose(&self) -> Pose {
        self.pose
    }

    /// The channel to the access point.
    ///
    /// # Errors
    ///
    /// None for points of the disc.
    pub fn channel(&mut self) -> Result<Channel, MmwaveError> {
        let (ap, place) = (self.ground.ap, self.pose.point);
        let los = self.dice.sees(self.ground.office, ap, place)?;
        let shape = self.shapes[usize::from(los)].get_or_insert_with(|| {
            let mut random = self.dice.rays.clone();
            Shape::draw(los, CENTRE_GHZ, &mut random)
        });
        shape.between(ap, place)
    }

    /// Advances by this many seconds. Returns whether anything has changed: a resting client keeps
    /// its channel.
    pub fn advance(&mut self, seconds: f64) -> bool {
        if !self.walk.moves() {
            return false;
        }
        let before = self.pose;
        let turned = (self.walk.turning * seconds).to_radians();
        self.pose.orientation.yaw = wrapped(self.pose.orientation.yaw + turned);
        let mut left = if self.walk.speed > 0.0 { seconds } else { 0.0 };
        // One waypoint per iteration: without a pause, short ways may put several into an interval.
        while left > 0.0 {
            let resting = self.rest.min(left);
            self.rest -= resting;
            left -= resting;
            let way = self.pose.point.distance_2d(self.goal);
            let reach = self.walk.speed * left;
            let step = reach.min(way);
            if way > 0.0 {
                let part = step / way;
                let (from, to) = (self.pose.point, self.goal);
                self.pose.point.x += (to.x - from.x) * part;
                self.pose.point.y += (to.y - from.y) * part;
                self.walked += step;
            }
            if reach < way {
                break;
            }
            left -= step / self.walk.speed;
            self.pose.point = self.goal;
            self.rest = self.walk.pause;
            if let Some(corners) = &mut self.corners {
                corners.rotate_left(1);
                self.goal = corners[0];
                let left = core::f64::consts::FRAC_PI_2;
                self.pose.orientation.yaw = wrapped(self.pose.orientation.yaw + left);
                continue;
            }
            self.goal = self.ground.anywhere(self.goal.z, &mut self.random);
            self.turn();
        }
        if self.corners.is_some() {
            return self.pose != before;
        }
        let at_ap = self.pose.point.direction_to(self.ground.ap).azimuth;
        let away = wrapped(self.pose.orientation.yaw - at_ap).abs();
        if away > self.ground.facing.max(HALF_COVERAGE_DEG.to_radians()) {
            self.turn();
        }
        if self.walked >= CORRELATION_M {
            self.walked = 0.0;
            let number = self.random.next_u64();
            self.dice = Dice::throw(&mut self.random.split(number));
            self.shapes = [None, None];
        }
        self.pose != before
    }

    /// Faces the access point again, within the angle.
    fn turn(&mut self) {
        if self.walk.turning > 0.0 {
            return;
        }
        let at_ap = self.pose.point.direction_to(self.ground.ap).azimuth;
        let away = (2.0 * self.random.next_f64() - 1.0) * self.ground.facing;
        self.pose.orientation.yaw = wrapped(at_ap + away);
    }
}

impl Ground {
    /// A uniformly drawn point of the disc, at that height.
    pub fn anywhere(&self, height: f64, random: &mut Random) -> Point {
        let distance = self.radius * random.next_f64().sqrt();
        let around = core::f64::consts::TAU * random.next_f64();
        let (x, y) = (distance * around.cos(), distance * around.sin());
        Point::new(x, y, height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::decibels;

    const AP: Point = Point {
        x: 0.0,
        y: 0.0,
        z: 3.0,
    };

    fn walker(walk: Walk, seed: u64) -> Walker {
        let ground = Ground {
            ap: AP,
            radius: 25.0,
            facing: 60f64.to_radians(),
            office: Office::Mixed,
        };
        let mut random = Random::new(seed);
        let place = ground.anywhere(1.0, &mut random);
        let pose = Pose::looking(place, AP, 0.3);
        let dice = Dice::throw(&mut random.split(1));
        Walker::new(walk, ground, pose, dice, random.split(2))
    }

    #[test]
    fn clients_keep_to_their_speed_and_the_disc() {
        for seed in 1..20 {
            let walk = Walk {
                speed: 1.4,
                pause: 2.0,
                turning: 0.0,
            };
            let mut walker = walker(walk, seed);
            let mut rested = 0;
            for _ in 0..3000 {
                let before = walker.pose().point;
                walker.advance(0.1);
                let now = walker.pose().point;
                let step = before.distance_2d(now);
                assert!(step <= 0.14 + 1e-9, "{step}");
                assert!(AP.distance_2d(now) <= 25.0 + 1e-9);
                assert_eq!(now.z, 1.0);
                rested += usize::from(step < 1e-9);
            }
            // About twelve ways of 23 m on average in five minutes, with 20 intervals of rest after
            // each.
            assert!((60..900).contains(&rested), "{rested}");
        }
    }

    #[test]
    fn a_robot_returns_to_its_place_direction_and_channel_after_each_round() {
        let walk = Walk {
            speed: 0.5,
            pause: 0.0,
            turning: 0.0,
        };
        let mut walker = walker(walk, 4).on_rectangle((2.0, 0.5));
        let (start, channel) = (walker.pose(), walker.channel().unwrap());
        let mut turned = 0;
        // Three rounds of 5 m: farther than the correlation distance.
        for step in 1..=300 {
            let before = walker.pose().orientation.yaw;
            walker.advance(0.1);
            let turn = wrapped(walker.pose().orientation.yaw - before);
            turned += usize::from(turn > 1.0);
            assert!(start.point.distance_2d(walker.pose().point) < 2.1);
            if step % 100 == 0 {
                assert!(start.point.distance_2d(walker.pose().point) < 0.051);
            }
        }
        assert!((11..=12).contains(&turned), "{turned}");
        let now = walker.channel().unwrap();
        assert_eq!((now.los, now.rays.len()), (channel.los, channel.rays.len()));
    }

    #[test]
    fn the_distance_matches_speed_and_time_between_rests() {
        let walk = Walk {
            speed: 2.0,
            pause: 0.0,
            turning: 0.0,
        };
        let mut walker = walker(walk, 3);
        let mut far = 0.0;
        for _ in 0..100_000 {
            let before = walker.pose().point;
            walker.advance(0.01);
            far += before.distance_2d(walker.pose().point);
        }
        // Straight except at waypoints, where a corner of 0.01 s is cut.
        assert!((1990.0..=2000.0 + 1e-6).contains(&far), "{far}");
    }

    #[test]
    fn the_access_point_stays_in_view() {
        let mut walker = walker(Walk::PEDESTRIAN, 5);
        for _ in 0..5000 {
            walker.advance(0.1);
            let pose = walker.pose();
            let at = pose.point.direction_to(AP).azimuth;
            let away = wrapped(pose.orientation.yaw - at).abs().to_degrees();
            assert!(away <= 60.0 + 1e-6, "{away}");
        }
    }

    #[test]
    fn a_standing_client_keeps_its_channel_and_a_step_changes_it_little() {
        let mut stands = walker(
            Walk {
                speed: 0.0,
                pause: 0.0,
                turning: 0.0,
            },
            7,
        );
        let before = stands.channel().unwrap();
        stands.advance(60.0);
        assert_eq!(stands.channel().unwrap(), before);

        let mut walks = walker(Walk::PEDESTRIAN, 7);
        let (mut small, mut all) = (0, 0);
        let mut before = walks.channel().unwrap();
        for _ in 0..400 {
            walks.advance(0.1);
            let now = walks.channel().unwrap();
            let change = (decibels(now.gain()) - decibels(before.gain())).abs();
            small += usize::from(change < 1.0);
            all += 1;
            before = now;
        }
        // 50 m have five new draws, a few changes of the line of sight, and steps of 14 cm
        // otherwise.
        assert!(small * 10 > all * 9, "{small} of {all}");
    }

    #[test]
    fn a_client_turning_in_place_stays_and_loses_sight() {
        let spins = Walk {
            speed: 0.0,
            pause: 0.0,
            turning: 37.0,
        };
        let mut walker = walker(spins, 3);
        let place = walker.pose().point;
        let mut seen = 0;
        for _ in 0..3000 {
            assert!(walker.advance(0.1));
            let pose = walker.pose();
            assert_eq!(pose.point, place);
            let at_ap = place.direction_to(AP).azimuth;
            let away = wrapped(pose.orientation.yaw - at_ap).abs().to_degrees();
            seen += usize::from(away <= HALF_COVERAGE_DEG);
        }
        // A third of the circle is covered.
        assert!((950..1050).contains(&seen), "{seen}");
    }

    #[test]
    fn the_channel_follows_the_dice_at_the_current_position() {
        let mut walker = walker(Walk::PEDESTRIAN, 13);
        let (mut rested, mut seen) = (0, 0);
        let mut before = None;
        for _ in 0..600 {
            let moved = walker.advance(0.1);
            let channel = walker.channel().unwrap();
            let (office, place) = (walker.ground.office, walker.pose().point);
            let (drawn, _) = walker.dice.channel(office, AP, place).unwrap();
            assert_eq!(channel, drawn);
            seen += usize::from(channel.los);
            if !moved {
                rested += 1;
                assert_eq!(before.as_ref(), Some(&channel));
            }
            before = Some(channel);
        }
        assert!(rested > 50 && seen > 0 && seen < 600, "{rested} {seen}");
    }

    #[test]
    fn dice_are_redrawn_after_the_correlation_distance() {
        let mut walker = walker(Walk::PEDESTRIAN, 11);
        let mut thrown = 0;
        let mut walked = 0.0;
        for _ in 0..2000 {
            let before = (walker.dice.chance, walker.pose().point);
            walker.advance(0.1);
            walked += before.1.distance_2d(walker.pose().point);
            thrown += u32::from(before.0 != walker.dice.chance);
        }
        let expected = (walked / CORRELATION_M) as u32;
        assert!(thrown.abs_diff(expected) <= 2, "{thrown} {expected}");
    }

    #[test]
    fn invalid_walks_are_rejected() {
        for (speed, pause, turning) in [
            (-1.0, 0.0, 0.0),
            (51.0, 0.0, 0.0),
            (f64::NAN, 0.0, 0.0),
            (1.0, -1.0, 0.0),
            (1.0, 0.0, -1.0),
            (1.0, 0.0, 361.0),
        ] {
            let walk = Walk {
                speed,
                pause,
                turning,
            };
            assert!(walk.checked().is_err());
        }
        assert!(Walk::PEDESTRIAN.checked().is_ok());
    }
}
