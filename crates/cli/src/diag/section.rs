//! A part of the report.

/// A text with a title.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) text: String,
}

impl Section {
    pub(super) fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            text: text.into(),
        }
    }
}
