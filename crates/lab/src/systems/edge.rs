//! The edge node, which the simulator has and the laboratory has not.

use super::{Running, Stage, System};
use crate::error::LabError;
use crate::scenario::Scenario;

const MISSING: &str = "the laboratory has no edge node: `sumlink sim run` has";

pub(super) struct Edge;

impl System for Edge {
    fn missing(&self, _scenario: &Scenario) -> Option<String> {
        Some(MISSING.to_owned())
    }

    fn start(&self, _stage: &Stage<'_>) -> Result<Running, LabError> {
        Err(LabError::Usage(MISSING.to_owned()))
    }
}
