//! Drawing: a small SVG writer, axes, and colors.
//!
//! Attributes give the colors on white. Every shape also has a class, and a style sheet in each
//! chart replaces the colors if the reader prefers a dark color scheme.

#![forbid(unsafe_code)]

mod axis;
mod beyond;
#[cfg(test)]
mod committed;
pub mod figures;
mod palette;
mod panel;
mod series;

use std::fmt::Write;

pub use axis::{Axis, Unit, short, tick_step};
pub use beyond::{Across, Inked};
pub use palette::{COLORS, Palette, Style};
pub use panel::{draw_panel, thinned};
pub use series::{MAX_SERIES, Shown, more};

/// The color of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Letters and axes.
    Text,
    /// Less prominent text.
    Muted,
    /// Grid lines.
    Grid,
    /// Backgrounds of panels.
    Panel,
    /// An index into [`COLORS`].
    Color(usize),
}

impl Ink {
    fn hex(self) -> &'static str {
        match self {
            Self::Text => "#1f2933",
            Self::Muted => "#52606d",
            Self::Grid => "#d9dee3",
            Self::Panel => "#f3f5f7",
            Self::Color(index) => COLORS[index % COLORS.len()].0,
        }
    }

    /// The color on a dark background.
    fn dark(self) -> &'static str {
        match self {
            Self::Text => "#e6e9ed",
            Self::Muted => "#a3acb8",
            Self::Grid => "#353d47",
            Self::Panel => "#1f252c",
            Self::Color(index) => COLORS[index % COLORS.len()].1,
        }
    }

    fn class(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Muted => "muted".to_owned(),
            Self::Grid => "grid".to_owned(),
            Self::Panel => "panel".to_owned(),
            Self::Color(index) => format!("c{}", index % COLORS.len()),
        }
    }

    /// Attributes of a filled shape.
    fn fill(self) -> String {
        format!("class=\"f-{}\" fill=\"{}\"", self.class(), self.hex())
    }

    /// Attributes of a line.
    fn stroke(self, width: f64) -> String {
        format!(
            "class=\"s-{}\" stroke=\"{}\" stroke-width=\"{width}\"",
            self.class(),
            self.hex()
        )
    }
}

/// The dark background.
const DARK: &str = "#14181d";

/// The style sheet of a chart: the colors for a dark color scheme. The colors on white are
/// attributes, which rules of a style sheet override.
fn style() -> String {
    let mut css = format!(
        "@media screen and (prefers-color-scheme:dark){{.paper{{fill:{DARK}}}\
         .halo,text[stroke]{{stroke:{DARK}}}"
    );
    let colors = (0..COLORS.len()).map(Ink::Color);
    for ink in [Ink::Text, Ink::Muted, Ink::Grid, Ink::Panel]
        .into_iter()
        .chain(colors)
    {
        let (class, dark) = (ink.class(), ink.dark());
        let _ = write!(css, ".f-{class}{{fill:{dark}}}.s-{class}{{stroke:{dark}}}");
    }
    css.push('}');
    css
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Left end at the position.
    Start,
    /// Middle at the position.
    Middle,
    /// Right end at the position.
    End,
}

/// A picture under construction; coordinates are pixels from the upper left corner.
#[derive(Clone, Debug)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty picture of this size; screen readers read the title.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let title = escape(title);
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\" \
             font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
             <title>{title}</title>\n<style>{}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
            style()
        );
        Self { text }
    }

    /// A filled rectangle: left, top, width, height.
    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), ink: Ink) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" {}/>",
            width.max(0.0),
            height.max(0.0),
            ink.fill()
        );
    }

    /// A rectangle filled with the color of a value: left, top, width, height.
    pub fn shade(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>"
        );
    }

    /// A solid dot.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, ink: Ink) {
        let _ = writeln!(
            self.text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" {}/>",
            ink.fill()
        );
    }

    /// A straight line; `dash` may be empty.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink, width: f64, dash: &str) {
        let _ = writeln!(
            self.text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" {}{}/>",
            from.0,
            from.1,
            to.0,
            to.1,
            ink.stroke(width),
            dashes(dash)
        );
    }

    /// A line through points.
    pub fn polyline(&mut self, points: &[(f64, f64)], ink: Ink, width: f64, dash: &str) {
        if points.len() > 1 {
            let _ = writeln!(
                self.text,
                "<polyline points=\"{}\" fill=\"none\" stroke-linejoin=\"round\" {}{}/>",
                joined(points),
                ink.stroke(width),
                dashes(dash)
            );
        }
    }

    /// A translucent area within points.
    pub fn area(&mut self, points: &[(f64, f64)], ink: Ink) {
        if points.len() > 2 {
            let _ = writeln!(
                self.text,
                "<polygon points=\"{}\" fill-opacity=\"0.22\" {}/>",
                joined(points),
                ink.fill()
            );
        }
    }

    /// A marker of a system: solid for a median, hollow for a single value.
    pub fn marker(&mut self, (x, y): (f64, f64), radius: f64, style: Style, solid: bool) {
        let ink = Ink::Color(style.color);
        let paint = if solid {
            // An outline in the background color separates overlapping markers.
            let fill = ink.fill().replace("class=\"", "class=\"halo ");
            format!("{fill} stroke=\"#ffffff\" stroke-width=\"1.2\"")
        } else {
            format!("fill=\"none\" {}", ink.stroke(1.3))
        };
        let r = radius;
        let _ = match style.variant {
            0 => writeln!(
                self.text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\" {paint}/>"
            ),
            1 => writeln!(
                self.text,
                "<polygon points=\"{}\" {paint}/>",
                joined(&[(x, y - r), (x + r, y + r), (x - r, y + r)])
            ),
            _ => writeln!(
                self.text,
                "<polygon points=\"{}\" {paint}/>",
                joined(&[(x, y - r), (x + r, y), (x, y + r), (x - r, y)])
            ),
        };
    }

    /// A text; `more` holds further attributes.
    pub fn text(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        ink: Ink,
        anchor: Anchor,
        more: &str,
        content: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" {} \
             {more}>{}</text>",
            ink.fill(),
            escape(content)
        );
    }

    /// The finished picture.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

fn dashes(dash: &str) -> String {
    if dash.is_empty() {
        String::new()
    } else {
        format!(" stroke-dasharray=\"{dash}\"")
    }
}

fn joined(points: &[(f64, f64)]) -> String {
    let mut text = String::with_capacity(points.len() * 12);
    for (index, (x, y)) in points.iter().enumerate() {
        let space = if index > 0 { " " } else { "" };
        let _ = write!(text, "{space}{x:.1},{y:.1}");
    }
    text
}

/// Escapes text for XML and HTML, as content and in attributes. Characters that XML forbids, and
/// those that change the direction of the text around them, become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The text, cut to `most` characters with an ellipsis.
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(
            escape("<script a=\"b\">'&\u{0}\u{202e}"),
            "&lt;script a=&quot;b&quot;&gt;&#39;&amp;\u{fffd}\u{fffd}"
        );
        let mut svg = Svg::new(10.0, 10.0, "a < b");
        svg.text((0.0, 0.0), 12.0, Ink::Text, Anchor::Start, "", "c & d");
        let svg = svg.finish();
        assert!(svg.contains("a &lt; b") && svg.contains("c &amp; d"));
    }

    #[test]
    fn every_ink_has_a_color_for_a_dark_scheme() {
        let svg = Svg::new(10.0, 10.0, "t").finish();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let style = document
            .descendants()
            .find(|node| node.has_tag_name("style"))
            .and_then(|node| node.text())
            .unwrap();
        assert!(style.starts_with("@media screen and (prefers-color-scheme:dark){"));
        assert!(style.contains(".paper{fill:#14181d}"), "{style}");
        let colors = (0..COLORS.len()).map(Ink::Color);
        for ink in [Ink::Text, Ink::Muted, Ink::Grid, Ink::Panel]
            .into_iter()
            .chain(colors)
        {
            for rule in [
                format!(".f-{}{{fill:{}}}", ink.class(), ink.dark()),
                format!(".s-{}{{stroke:{}}}", ink.class(), ink.dark()),
            ] {
                assert!(style.contains(&rule), "{rule}: {style}");
            }
            assert_ne!(ink.hex(), ink.dark());
        }
        // A page with several charts has the sheet several times: it must be the same in all.
        assert_eq!(svg.matches("<style>").count(), 1);
    }

    #[test]
    fn long_texts_are_cut_at_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äö…");
    }
}
