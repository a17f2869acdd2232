//! Growth curves as SVG: both axes logarithmic, one line for each who.

use plotters::{
    chart::ChartBuilder,
    coord::combinators::IntoLogRange as _,
    element::{Circle, PathElement, Text},
    prelude::{IntoDrawingArea as _, SVGBackend},
    series::LineSeries,
    style::{Color as _, RGBColor, WHITE},
};

use super::say;
use crate::{
    plan::{Cell, Curve},
    results::Results,
    task::Failure,
};

const SIZE: (u32, u32) = (900, 480);
/// Where the lines' names stand, in pixels.
const LEGEND_WIDTH: u32 = 190;
const LEGEND_TOP: i32 = 60;
const LEGEND_STEP: i32 = 24;
/// Told apart also by people who see fewer colours (Okabe and Ito).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(153, 153, 153),
    RGBColor(120, 94, 240),
];

/// A line's name and its points.
type Line = (&'static str, Vec<(f64, f64)>);

/// The curve, or nothing where no line has two points.
///
/// # Errors
/// When it cannot be drawn.
pub(super) fn draw(curve: &Curve, results: &Results) -> Result<Option<String>, Failure> {
    let lines: Vec<Line> = lines(curve, results);
    let points = || lines.iter().flat_map(|(_, points)| points);
    let Some(across) = bounds(points().map(|point| point.0)) else { return Ok(None) };
    let Some(up) = bounds(points().map(|point| point.1)) else { return Ok(None) };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, names) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        let mut chart = ChartBuilder::on(&plot)
            .caption(curve.title, ("sans-serif", 18))
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(76)
            .build_cartesian_2d((across.0..across.1).log_scale(), (up.0..up.1).log_scale())?;
        chart
            .configure_mesh()
            .x_desc(curve.across)
            .y_desc(curve.up)
            .x_label_formatter(&|value| say::number(*value))
            .y_label_formatter(&|value| say::number(*value))
            .light_line_style(RGBColor(236, 236, 236))
            .draw()?;
        for (at, ((name, points), colour)) in (0..).zip(lines.into_iter().zip(COLOURS.iter().cycle())) {
            let style = colour.stroke_width(2);
            chart.draw_series(LineSeries::new(points.clone(), style))?;
            chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
            // Beside the plot, where it covers no line.
            let y = LEGEND_TOP + at * LEGEND_STEP;
            names.draw(&PathElement::new(vec![(8, y), (30, y)], style))?;
            names.draw(&Text::new(name, (38, y - 7), ("sans-serif", 14)))?;
        }
        area.present()?;
    }
    Ok(Some(svg))
}

fn lines(curve: &Curve, results: &Results) -> Vec<Line> {
    let of = |&(stage, who, name)| {
        let is = |cell: &&Cell| cell.stage == stage && cell.what == curve.what && cell.who == who;
        let mut points: Vec<(f64, f64)> = results
            .cells()
            .filter(is)
            .filter_map(|cell| {
                // A logarithm has no place for nothing at all.
                let middle = results.middle(cell, curve.figure)?.median;
                (middle > 0.0).then_some((f64::from(cell.size), middle))
            })
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        (points.len() > 1).then_some((name, points))
    };
    curve.lines.iter().filter_map(of).collect()
}

/// Around all values, with some air.
fn bounds(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let low = values.clone().min_by(f64::total_cmp)?;
    let high = values.max_by(f64::total_cmp)?;
    Some((low / 1.3, high * 1.6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::RATE_CURVES, results::Line, stage::Stage, task::What};

    fn results(rates: &[(u32, f64)]) -> Results {
        let mut results = Results::default();
        for &(size, rate) in rates {
            let cell = Cell { stage: Stage::Redis, what: What::Pairs, who: "rslock".to_owned(), size };
            let outcome = Ok([(RATE_CURVES[0].figure.to_owned(), rate)].into());
            results.add(Line { cell, round: 0, outcome });
        }
        results
    }

    #[test]
    fn a_line_with_points_is_drawn_and_named() {
        let svg = draw(&RATE_CURVES[0], &results(&[(1, 1e4), (64, 1e5)])).unwrap().unwrap();
        assert!(
            svg.starts_with("<svg") && svg.contains("rslock") && svg.contains("pairs per second"),
            "{svg}"
        );
        assert!(!svg.contains("SQLite"), "{svg}");
    }

    #[test]
    fn nothing_is_drawn_of_a_single_point_or_of_nothing() {
        assert!(draw(&RATE_CURVES[0], &results(&[(1, 1e4)])).unwrap().is_none());
        assert!(draw(&RATE_CURVES[0], &results(&[(1, 0.0), (2, 0.0)])).unwrap().is_none());
    }
}
