//! The description of an algorithm, and its construction from parameters.

use crate::control::CongestionControl;
use crate::parameter::{BuildError, Parameters};
use crate::window::{Window, WindowParameters};

/// Description of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name in settings.
    pub name: &'static str,
    /// Its behavior and purpose, in one line.
    pub about: &'static str,
    /// Paper or standard.
    pub source: &'static str,
    /// Whether it depends on the state of its siblings.
    pub coupled: bool,
}

/// An algorithm that the registry can build.
pub trait Algorithm: CongestionControl + Sized + 'static {
    /// Its description.
    const INFO: Info;

    /// Its parameters besides the window's.
    type Parameters: Parameters;

    /// Defaults of its window.
    fn window_parameters() -> WindowParameters {
        WindowParameters::default()
    }

    /// A flow's initial state.
    ///
    /// # Errors
    ///
    /// A parameter out of range.
    fn new(window: Window, parameters: Self::Parameters) -> Result<Self, BuildError>;
}

/// The methods of [`CongestionControl`] that are the same in all algorithms with a field `window`.
macro_rules! has_window {
    () => {
        fn name(&self) -> &str {
            <Self as $crate::algorithm::Algorithm>::INFO.name
        }

        fn window(&self) -> &$crate::window::Window {
            &self.window
        }

        fn window_mut(&mut self) -> &mut $crate::window::Window {
            &mut self.window
        }
    };
}
pub(crate) use has_window;
