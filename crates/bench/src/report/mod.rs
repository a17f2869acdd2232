//! What people read: tables and plots in a page whose prose is written by hand.

mod machine;
mod page;
mod plot;
mod say;
mod table;

use std::{fmt::Write as _, fs, path::Path};

pub(crate) use machine::describe;

use crate::{
    plan::{Curve, Group, KEEP_CURVES, RATE_CURVES, TURN_CURVES},
    results::Results,
    task::Failure,
};

/// The page, and the folder of its plots beside it.
const PAGE: &str = "docs/performance.md";
const PLOTS: &str = "docs/performance";

/// Everything as text, for a terminal.
pub(crate) fn text(groups: &[Group], results: &Results) -> String {
    format!("{}\n{}", table::goals(groups, results), table::figures(groups, results))
}

/// Writes the page's blocks and the plots of those curves that have points.
///
/// # Errors
/// When the page has no such blocks, or files cannot be written.
pub(crate) fn write(root: &Path, groups: &[Group], results: &Results, machine: &str) -> Result<(), Failure> {
    let page = root.join(PAGE);
    let mut text = fs::read_to_string(&page)?;
    let mut plots = String::new();
    for curve in curves() {
        if let Some(drawn) = plot::draw(curve, results)? {
            fs::create_dir_all(root.join(PLOTS))?;
            fs::write(root.join(PLOTS).join(format!("{}.svg", curve.file)), drawn)?;
            let _ = write!(plots, "![{}](performance/{}.svg)\n\n", curve.title, curve.file);
        }
    }
    for (name, content) in [
        ("machine", machine.to_owned()),
        ("goals", table::goals(groups, results)),
        ("figures", table::figures(groups, results)),
        ("plots", plots),
    ] {
        text = page::replace(&text, name, &content)?;
    }
    Ok(fs::write(page, text)?)
}

fn curves() -> impl Iterator<Item = &'static Curve> {
    RATE_CURVES.iter().chain(TURN_CURVES).chain(KEEP_CURVES)
}
