//! The names of a file's links, which other blocks refer to.

use std::collections::HashSet;

use super::document::Document;
use super::section::{At, Section};

/// The names of all links of a file, including invalid ones.
pub(crate) struct Names(Vec<String>);

impl Names {
    pub(crate) fn new(document: &Document<'_>, root: &mut Section<'_, '_>) -> Self {
        // Problems of the blocks are reported when they are read.
        let mut names = Vec::new();
        let mut ignored = document.silent();
        for mut block in root.blocks(&mut ignored, "link") {
            names.extend(block.text(&mut ignored, "name").map(|name| name.value));
        }
        Self(names)
    }

    /// The name, if that link exists.
    pub(crate) fn find(&self, document: &mut Document<'_>, name: &At<String>) -> Option<String> {
        if self.0.contains(&name.value) {
            return Some(name.value.clone());
        }
        let known = self.0.join(", ");
        document.problem(
            &name.span,
            format!("there is no link '{}' (links: {known})", name.value),
        );
        None
    }

    /// The names in `links`, at least `least`, each once.
    pub(crate) fn find_all(
        &self,
        document: &mut Document<'_>,
        section: &mut Section<'_, '_>,
        least: usize,
    ) -> Option<Vec<String>> {
        if !section.has("links") {
            section.missing(document, "links", "links = [\"NAME\", \"NAME\"]");
            return None;
        }
        let listed = section.texts(document, "links")?;
        let count = listed.len();
        let names: Vec<_> = listed
            .iter()
            .filter_map(|name| self.find(document, name))
            .collect();
        let distinct = names.iter().collect::<HashSet<_>>().len();
        if count < least {
            document.problem(&section.span(), format!("links: name at least {least}"));
        } else if distinct < names.len() {
            document.problem(&section.span(), "links: a link appears twice");
        }
        (distinct == count && count >= least).then_some(names)
    }
}
