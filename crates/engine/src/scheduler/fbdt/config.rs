//! The settings of FBDT.

use super::Coupling;
use crate::Class;
use crate::config::ConfigError;
use crate::scheduler::View;
use crate::stream::Stream;

/// Settings of the `fbdt` scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct FbdtConfig {
    /// Sizes of transmission windows, one rule for each class in the order of [`Class`].
    pub windows: [WindowRule; 4],
    /// For each class, in the same order: a stream with at most this many unacknowledged bytes is
    /// raced, which means sent over two paths at once, within [`crate::Redundancy`]. It applies if
    /// the first path has recently had losses or stalls, or is new. 0 for never.
    pub race: [u64; 4],
    /// Whether the paths' send windows are scaled.
    pub coupling: Coupling,
}

/// Size of a class's transmission windows.
///
/// `products` bandwidth-delay products of all paths together (the sum of their rates times the
/// largest round-trip time), but at least `least`, at most `most`, and at most a quarter of the
/// session's memory. A stream begins with `least`, and no window is larger than a quarter of the
/// bytes that have arrived before it. A window never extends beyond the written bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRule {
    /// Bandwidth-delay products, from 0 to 1000.
    pub products: f64,
    /// Smallest size in bytes, at least 1024.
    pub least: u64,
    /// Largest size in bytes, up to 2^40.
    pub most: u64,
}

/// The default rules; docs/notes/redundancy.md has the measurements.
const WINDOWS: [WindowRule; 4] = [
    // Conversational: the bytes of one write, and no more.
    WindowRule {
        products: 0.0,
        least: 16 << 10,
        most: 16 << 10,
    },
    // Streaming and interactive: steady delivery, so that few bytes wait behind a gap.
    WindowRule {
        products: 1.0 / 16.0,
        least: 16 << 10,
        most: 4 << 20,
    },
    WindowRule {
        products: 1.0 / 16.0,
        least: 16 << 10,
        most: 4 << 20,
    },
    // Background: at least twice the data in flight, so that the ends rarely meet.
    WindowRule {
        products: 2.0,
        least: 16 << 10,
        most: 64 << 20,
    },
];

impl Default for FbdtConfig {
    fn default() -> Self {
        Self {
            windows: WINDOWS,
            race: [16 << 10, 0, 4 << 10, 0],
            coupling: Coupling::default(),
        }
    }
}

impl FbdtConfig {
    /// Checks that the values are in range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let makes_sense = |rule: &WindowRule| {
            (0.0..=1000.0).contains(&rule.products)
                && (1024..=1 << 40).contains(&rule.least)
                && (rule.least..=1 << 40).contains(&rule.most)
        };
        if !self.windows.iter().all(makes_sense) {
            return Err(ConfigError::Window);
        }
        if !self.coupling.is_valid() {
            return Err(ConfigError::Coupling);
        }
        Ok(())
    }

    /// Whether the next bytes of `stream` are sent over two paths.
    pub(super) fn is_raced(&self, stream: &Stream) -> bool {
        let [conversational, streaming, interactive, background] = self.race;
        let most = match stream.class() {
            Class::Conversational => conversational,
            Class::Streaming => streaming,
            Class::Interactive => interactive,
            Class::Background => background,
        };
        stream.written() - stream.acknowledged() <= most
    }

    /// Size of a stream's next window.
    pub(super) fn window(&self, stream: &Stream, view: &View<'_>) -> u64 {
        let [conversational, streaming, interactive, background] = &self.windows;
        let rule = match stream.class() {
            Class::Conversational => conversational,
            Class::Streaming => streaming,
            Class::Interactive => interactive,
            Class::Background => background,
        };
        let most = rule.most.min(view.memory() / 4).max(rule.least);
        let size = (view.bandwidth_delay() * rule.products) as u64;
        // The reader's first bytes bring the credit for more, so the first windows are small.
        let begun = stream.acknowledged() / 4;
        size.clamp(rule.least, most).min(begun.max(rule.least))
    }
}
