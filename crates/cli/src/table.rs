//! Tables for people: columns as wide as what is in them.

/// The rows under each other, below a head where there is one.
pub(crate) fn table<const N: usize>(head: Option<[&str; N]>, rows: &[[String; N]]) -> String {
    let head = head.map(|head| head.map(str::to_owned));
    let rows: Vec<&[String; N]> = head.iter().chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row.iter()) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
