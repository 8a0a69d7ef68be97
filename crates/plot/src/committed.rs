//! Checks the charts in docs: no value is clipped without a mark, and each can be read in dark
//! mode.

use std::fs;
use std::path::{Path, PathBuf};

use roxmltree::{Document, Node};

/// Tolerance in pixels for line widths and marks that cross an edge.
const TOLERANCE: f64 = 6.0;

fn pictures(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            pictures(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "svg") {
            found.push(path);
        }
    }
}

fn numbers(text: &str) -> Vec<f64> {
    let parts = text.split(|c: char| c.is_whitespace() || c == ',' || c.is_ascii_alphabetic());
    parts.filter_map(|part| part.parse().ok()).collect()
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    let value = node.attribute(name).and_then(|value| value.parse().ok());
    value.unwrap_or(0.0)
}

/// The corners of a shape without transformation.
fn points(node: Node<'_, '_>) -> Vec<f64> {
    let of = |names: &[&str]| names.iter().map(|name| number(node, name)).collect();
    match node.tag_name().name() {
        "polyline" | "polygon" => numbers(node.attribute("points").unwrap_or("")),
        "line" => of(&["x1", "y1", "x2", "y2"]),
        "circle" => of(&["cx", "cy"]),
        "rect"
            if node
                .attribute("width")
                .is_some_and(|width| !width.ends_with('%')) =>
        {
            let [x, y] = ["x", "y"].map(|name| number(node, name));
            let [width, height] = ["width", "height"].map(|name| number(node, name));
            vec![x, y, x + width, y + height]
        }
        _ => Vec::new(),
    }
}

/// The clip rectangle of a shape: left, top, right, bottom.
fn clip(document: &Document<'_>, node: Node<'_, '_>) -> Option<[f64; 4]> {
    let name = node
        .attribute("clip-path")?
        .strip_prefix("url(#")?
        .strip_suffix(')')?;
    let path = document
        .descendants()
        .find(|other| other.attribute("id") == Some(name))?;
    let rect = path.children().find(|child| child.has_tag_name("rect"))?;
    points(rect).try_into().ok()
}

fn outside(points: &[f64], [left, top, right, bottom]: [f64; 4]) -> bool {
    let beyond = |pair: &[f64]| {
        pair[0] < left - TOLERANCE
            || pair[0] > right + TOLERANCE
            || pair[1] < top - TOLERANCE
            || pair[1] > bottom + TOLERANCE
    };
    points.chunks_exact(2).any(beyond)
}

/// Describes the problem of a chart, if any.
fn fault(text: &str) -> Option<String> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = Document::parse_with_options(text, options).unwrap();
    let paper = numbers(document.root_element().attribute("viewBox").unwrap());
    let paper = [paper[0], paper[1], paper[0] + paper[2], paper[1] + paper[3]];
    // matplotlib clips curves at the edges of their axes; arrows must mark this.
    let arrows = document.descendants().filter(|node| {
        let id = node.attribute("id");
        id.is_some_and(|id| id.starts_with("beyond"))
    });
    let has_arrows = arrows.count() > 0;
    for node in document.descendants() {
        if outside(&points(node), paper) {
            return Some(format!(
                "{} outside of the image: {:?}",
                node.tag_name().name(),
                points(node)
            ));
        }
        // Grid lines may be clipped: they are not values.
        let is_grid = node
            .attribute("style")
            .is_some_and(|style| style.contains("#e3e3e3"));
        let Some(plot) = clip(&document, node).filter(|_| !is_grid && !has_arrows) else {
            continue;
        };
        if outside(&numbers(node.attribute("d").unwrap_or("")), plot) {
            return Some(format!("a curve is clipped at {plot:?}"));
        }
    }
    None
}

#[test]
fn no_committed_picture_hides_a_value() {
    let mut all = Vec::new();
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    pictures(&results, &mut all);
    assert!(all.len() > 40, "{}", all.len());
    let faults = all.iter().filter_map(|path| {
        let text = fs::read_to_string(path).unwrap();
        Some(format!("{}: {}", path.display(), fault(&text)?))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_committed_picture_has_colors_for_a_dark_scheme() {
    let mut all = Vec::new();
    pictures(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"),
        &mut all,
    );
    let lacks = all.iter().filter(|path| {
        let text = fs::read_to_string(path).unwrap();
        !text.contains("(prefers-color-scheme:dark)")
    });
    let lacks: Vec<_> = lacks.collect();
    assert!(all.len() > 40 && lacks.is_empty(), "{lacks:?}");
}

#[test]
fn clipped_and_outside_shapes_are_found() {
    let curve = |id: &str, d: &str| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 100 100\"><g id=\"{id}\"/>\
             <path d=\"{d}\" clip-path=\"url(#p)\"/><defs><clipPath id=\"p\">\
             <rect x=\"10\" y=\"10\" width=\"80\" height=\"80\"/></clipPath></defs></svg>"
        )
    };
    assert_eq!(fault(&curve("a", "M 10 90 L 50 20")), None);
    assert!(fault(&curve("a", "M 10 90 L 50 -20")).is_some());
    assert_eq!(fault(&curve("beyond_1", "M 10 90 L 50 -20")), None);
    let mark = |x: u32| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 100 100\">\
             <circle cx=\"{x}\" cy=\"5\" r=\"2\"/></svg>"
        )
    };
    assert_eq!(
        (fault(&mark(99)), fault(&mark(300)).is_some()),
        (None, true)
    );
}
