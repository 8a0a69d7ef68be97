//! The timeline of a simulated run: the bytes carried by each link over time, repeated bytes, and
//! the times in which the receiver waited.
//!
//! It is drawn from a trace of `sumlink-lab sim run --trace`. Streams are stacked in the order in
//! which they began, so the height in the chart is a position in the data of one side.

mod draw;
mod events;
mod lower;
mod marks;
mod panel;

use std::io::BufRead;

use events::Timeline;

/// Draws a trace as SVG; `None` if it contains no bytes. `links` lists the links' names in order.
///
/// The chart shows the direction that carried more bytes.
///
/// # Errors
///
/// Returns an error if the trace cannot be read or a line is invalid, with the number of the line.
pub fn timeline(
    trace: impl BufRead,
    links: &[String],
    title: &str,
) -> Result<Option<String>, String> {
    let story = Timeline::read(trace)?;
    Ok(story.map(|story| draw::draw(&story, links, title)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{"t_ns":1000000,"event":"up","side":"server","path":0}
{"t_ns":1000000,"event":"up","side":"server","path":1}
{"t_ns":1000000,"event":"path","side":"server","path":0,"link":0,"cwnd":1,"in_flight":0,"unsent":0,"srtt_us":1,"delivery_rate":0,"loss":"open"}
{"t_ns":1000000,"event":"path","side":"server","path":1,"link":1,"cwnd":1,"in_flight":0,"unsent":0,"srtt_us":1,"delivery_rate":0,"loss":"open"}
{"t_ns":2000000,"event":"data","side":"client","path":0,"stream":0,"offset":0,"bytes":100}
{"t_ns":5000000,"event":"data","side":"server","path":0,"stream":0,"offset":0,"bytes":4000}
{"t_ns":5000000,"event":"data","side":"server","path":1,"stream":0,"offset":4000,"bytes":4000}
{"t_ns":9000000,"event":"read","side":"client","stream":0,"offset":0,"bytes":4000,"waiting":0}
{"t_ns":9500000,"event":"data","side":"server","path":0,"stream":0,"offset":8000,"bytes":2000}
{"t_ns":9600000,"event":"stalled","side":"server","path":1}
{"t_ns":9650000,"event":"held","side":"client","waiting":500}
{"t_ns":9700000,"event":"data","side":"server","path":0,"stream":0,"offset":4000,"bytes":4000}
{"t_ns":15000000,"event":"held","side":"client","waiting":2000}
{"t_ns":20000000,"event":"read","side":"client","stream":0,"offset":4000,"bytes":6000,"waiting":0}
"#;

    fn names() -> Vec<String> {
        ["wifi", "lte <5 G>"].map(str::to_owned).to_vec()
    }

    #[test]
    fn it_shows_links_duplicates_and_waits() {
        let svg = timeline(TRACE.as_bytes(), &names(), "two links").unwrap();
        insta::assert_snapshot!(svg.unwrap());
    }

    #[test]
    fn a_trace_without_bytes_has_no_chart_and_an_invalid_one_is_an_error() {
        let first = TRACE.lines().next().unwrap();
        assert_eq!(timeline(first.as_bytes(), &names(), ""), Ok(None));
        let broken = format!("{first}\n{{\"t_ns\":1,");
        let error = timeline(broken.as_bytes(), &names(), "").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
    }

    #[test]
    fn the_size_of_a_chart_is_independent_of_the_run() {
        let mut trace = String::new();
        for piece in 0..200_000u64 {
            let (at, path, offset) = (piece * 50_000, piece % 2, piece * 10_000);
            trace += &format!(
                "{{\"t_ns\":{at},\"event\":\"data\",\"side\":\"server\",\"path\":{path},\"stream\":0,\
                 \"offset\":{offset},\"bytes\":10000}}\n"
            );
        }
        let svg = timeline(trace.as_bytes(), &names(), "").unwrap().unwrap();
        assert!(svg.len() < 1_000_000, "{} bytes", svg.len());
    }
}
