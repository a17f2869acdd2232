//! The same as a picture: SVG that needs nothing else, and a page around it.

use std::fmt::Write as _;

use super::{
    Grant, Story, Tale,
    draw::extent,
    findings::{Finding, span},
};
use crate::people;

const WIDTH: f64 = 1_100.0;
const LEFT: f64 = 220.0;
const ROW: f64 = 26.0;

/// One picture of all resources, one below the other.
pub(crate) fn svg(story: &Story) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for ((_, resource), tale) in story.tales.iter().filter(|(_, tale)| !tale.grants.is_empty()) {
        y = resource_at(&mut body, y, story, resource, tale);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" viewBox=\"0 0 {WIDTH} {y}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>.held{{fill:#3b7dd8}}.draining{{fill:#8fb7ea}}.silent{{fill:none;stroke:#3b7dd8;stroke-dasharray:3 2}}\
         .renewed{{stroke:#fff;stroke-opacity:.6}}.failed{{stroke:#e0a000;stroke-width:2}}.lost{{stroke:#c8102e;stroke-width:3}}\
         .bounced{{fill:#c8102e}}.name{{fill:#333}}.axis{{stroke:#ccc}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

/// The picture in a page, with what was found.
pub(crate) fn html(story: &Story, findings: &[Finding]) -> String {
    let mut list = String::new();
    for finding in findings {
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(
            list,
            "<li><b>{}</b> {}: {}</li>",
            finding.word.replace('_', " "),
            escaped(&finding.resource),
            escaped(&finding.text)
        );
    }
    let found =
        if list.is_empty() { "<p>Nothing to point at.</p>".to_owned() } else { format!("<ul>\n{list}</ul>") };
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Leases</title>\n\
         <body style=\"font-family:sans-serif;max-width:72rem;margin:1rem auto\">\n<h1>Who held what</h1>\n{}\n\
         <p>Bars are grants; white lines renewals, amber ones failed renewals, red ones losses, red diamonds writes that a fence \
         refused. A dashed end is not told by any log: it was over then at the latest. Point at a bar for its figures.</p>\n\
         <h2>To look at</h2>\n{found}\n</body></html>\n",
        svg(story)
    )
}

/// Draws one resource from `y` downwards; where the next begins.
fn resource_at(body: &mut String, mut y: f64, story: &Story, resource: &str, tale: &Tale) -> f64 {
    let (from_us, to_us) = extent(tale);
    let x = |us: i64| {
        #[allow(clippy::cast_precision_loss, reason = "a picture has a thousand columns")]
        let part = (us - from_us) as f64 / (to_us - from_us) as f64;
        LEFT + part * (WIDTH - LEFT - 20.0)
    };
    let instant = |us: i64| people::instant(us.max(0).unsigned_abs());
    let _ = writeln!(
        body,
        "<text class=\"name\" x=\"10\" y=\"{}\" font-weight=\"bold\">{}</text>\
         <text class=\"name\" x=\"{LEFT}\" y=\"{}\">{} to {} ({})</text>",
        y + 14.0,
        escaped(resource),
        y + 14.0,
        instant(from_us),
        instant(to_us),
        span(to_us - from_us)
    );
    y += 22.0;
    let mut rows: Vec<&str> = Vec::new();
    for grant in tale.grants.values() {
        if !rows.contains(&grant.holder_id.as_str()) {
            rows.push(&grant.holder_id);
        }
    }
    for id in &rows {
        let _ = writeln!(
            body,
            "<text class=\"name\" x=\"10\" y=\"{}\">{}</text><line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
            y + 16.0,
            escaped(&story.name(id)),
            WIDTH - 20.0,
            y + ROW,
            y + ROW
        );
        for (token, grant) in tale.grants.iter().filter(|(_, grant)| grant.holder_id == *id) {
            bar(body, y + 3.0, *token, grant, &x);
        }
        for (at_us, ..) in tale
            .bounced
            .iter()
            .filter(|(_, token, _)| tale.grants.get(token).is_some_and(|grant| grant.holder_id == *id))
        {
            let (cx, cy) = (x(*at_us), y + 13.0);
            let _ = writeln!(body, "<path class=\"bounced\" d=\"M{cx} {} l6 7 l-6 7 l-6 -7z\"/>", cy - 7.0);
        }
        y += ROW;
    }
    y + 14.0
}

fn bar(body: &mut String, y: f64, token: u64, grant: &Grant, x: &impl Fn(i64) -> f64) {
    const HEIGHT: f64 = 20.0;
    let (from, last, latest) = (x(grant.from_us), x(grant.last_us()), x(grant.latest_us()));
    let width = |from: f64, to: f64| (to - from).max(1.5);
    let _ = writeln!(
        body,
        "<g><title>token {token}, {}, {} renewals, {}</title><rect class=\"held\" x=\"{from}\" y=\"{y}\" width=\"{}\" \
         height=\"{HEIGHT}\"/>",
        span(grant.last_us() - grant.from_us),
        grant.renewed.len(),
        escaped(grant.end_word()),
        width(from, last)
    );
    if let Some(draining_us) = grant.draining {
        let from = x(draining_us);
        let _ = writeln!(
            body,
            "<rect class=\"draining\" x=\"{from}\" y=\"{y}\" width=\"{}\" height=\"{HEIGHT}\"/>",
            width(from, last)
        );
    }
    if latest > last {
        let _ = writeln!(
            body,
            "<rect class=\"silent\" x=\"{last}\" y=\"{y}\" width=\"{}\" height=\"{HEIGHT}\"/>",
            latest - last
        );
    }
    let mut line = |class: &str, at_us: i64| {
        let at = x(at_us);
        let _ = writeln!(
            body,
            "<line class=\"{class}\" x1=\"{at}\" x2=\"{at}\" y1=\"{y}\" y2=\"{}\"/>",
            y + HEIGHT
        );
    };
    grant.renewed.iter().for_each(|at_us| line("renewed", *at_us));
    grant.failed.iter().for_each(|at_us| line("failed", *at_us));
    if let Some(finish) = grant.finish.as_ref().filter(|finish| finish.reason != "released") {
        line("lost", finish.at_us);
    }
    body.push_str("</g>\n");
}

/// A text in XML: names are chosen by others.
pub(crate) fn escaped(text: &str) -> String {
    let visible = people::visible(text);
    visible.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
