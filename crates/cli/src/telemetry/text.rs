//! The text format of Prometheus (version 0.0.4), written and, for files of ours, read back.

use std::fmt::Write as _;

use leasehold::metric::{ALL, BUCKETS, Metric, Sort};

use super::snapshot::{Figure, Snapshot};

/// Writes figures; families in the order of their names.
pub(super) fn write(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (name, figures) in &snapshot.0 {
        let Some(metric) = ALL.iter().find(|metric| metric.name == *name) else { continue };
        let sort = match metric.sort {
            Sort::Counter => "counter",
            Sort::Gauge => "gauge",
            Sort::Histogram => "histogram",
        };
        // Writing into a String cannot fail, here and below.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {sort}", metric.help);
        for (labels, figure) in figures {
            write_figure(&mut text, name, labels, figure);
        }
    }
    text
}

fn write_figure(text: &mut String, name: &str, labels: &str, figure: &Figure) {
    let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = match figure {
        Figure::Counter(value) => writeln!(text, "{name}{braced} {value}"),
        Figure::Gauge(value) => writeln!(text, "{name}{braced} {value}"),
        Figure::Histogram { buckets, sum } => {
            let comma = if labels.is_empty() { "" } else { "," };
            let mut below = 0;
            for (at, count) in buckets.iter().enumerate() {
                below += count;
                let bound = BUCKETS.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
                let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
            }
            writeln!(text, "{name}_sum{braced} {sum}\n{name}_count{braced} {below}")
        }
    };
}

/// Reads what [`write`] wrote; `Err` with the line that is no such thing.
pub(super) fn read(text: &str) -> Result<Snapshot, String> {
    let mut snapshot = Snapshot::default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        read_line(&mut snapshot, line).ok_or_else(|| format!("no line of ours: {line}"))?;
    }
    for figure in snapshot.0.values_mut().flat_map(|figures| figures.values_mut()) {
        if let Figure::Histogram { buckets, .. } = figure {
            // They stand there as sums of all below.
            for at in (1..buckets.len()).rev() {
                buckets[at] = buckets[at].checked_sub(buckets[at - 1]).ok_or("buckets that fall")?;
            }
        }
    }
    Ok(snapshot)
}

fn read_line(snapshot: &mut Snapshot, line: &str) -> Option<()> {
    let (series, value) = line.rsplit_once(' ')?;
    let (full_name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}')?),
        None => (series, ""),
    };
    let (metric, part) = family(full_name)?;
    let (labels, bound) = match labels.rsplit_once("le=\"") {
        Some((labels, bound)) if part == "_bucket" => (labels.trim_end_matches(','), bound.strip_suffix('"')),
        _ => (labels, None),
    };
    let figures = snapshot.0.entry(metric.name).or_default();
    if metric.sort != Sort::Histogram {
        let figure = match metric.sort {
            Sort::Counter => Figure::Counter(value.parse().ok()?),
            _ => Figure::Gauge(value.parse().ok()?),
        };
        figures.insert(labels.to_owned(), figure);
        return Some(());
    }
    let empty = || Figure::Histogram { buckets: vec![0; BUCKETS.len() + 1], sum: 0.0 };
    let Figure::Histogram { buckets, sum } = figures.entry(labels.to_owned()).or_insert_with(empty) else {
        return None;
    };
    match part {
        "_sum" => *sum = value.parse().ok()?,
        "_bucket" => {
            let bound: f64 = bound?.parse().ok()?;
            // A file with other bounds cannot be added to.
            let at = if bound.is_infinite() { BUCKETS.len() } else { position(bound)? };
            *buckets.get_mut(at)? = value.parse().ok()?;
        }
        _ => {}
    }
    Some(())
}

fn position(bound: f64) -> Option<usize> {
    BUCKETS.iter().position(|known| known.total_cmp(&bound).is_eq())
}

/// The family of a series, and which part of a histogram it is.
fn family(name: &str) -> Option<(&'static Metric, &'static str)> {
    let plain = ALL.iter().find(|metric| metric.name == name && metric.sort != Sort::Histogram);
    plain.map(|metric| (metric, "")).or_else(|| {
        ["_bucket", "_sum", "_count"].into_iter().find_map(|part| {
            let stem = name.strip_suffix(part)?;
            let metric = ALL.iter().find(|metric| metric.name == stem && metric.sort == Sort::Histogram)?;
            Some((metric, part))
        })
    })
}

#[cfg(test)]
mod tests {
    use leasehold::metric;

    use super::*;

    fn sample() -> Snapshot {
        let mut snapshot = Snapshot::default();
        let labels = r#"engine="sqlite",namespace="a b,le=\"7""#;
        snapshot.insert(metric::GRANTS, labels.to_owned(), Figure::Counter(u64::MAX));
        snapshot.insert(metric::STALE_WRITES, String::new(), Figure::Counter(0));
        snapshot.insert(metric::HELD, labels.to_owned(), Figure::Gauge(2.0));
        let buckets = (0..=BUCKETS.len() as u64).collect();
        snapshot.insert(metric::CALL, labels.to_owned(), Figure::Histogram { buckets, sum: 1.25 });
        snapshot
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = write(&sample());
        assert_eq!(read(&text).unwrap(), sample(), "{text}");
        assert!(text.contains("# TYPE lease_call_seconds histogram\n"), "{text}");
        assert!(text.contains(",le=\"0.2\"} "), "{text}");
        assert!(text.contains(",le=\"+Inf\"} 231\n"), "{text}");
    }

    #[test]
    fn a_file_that_is_not_ours_is_refused() {
        for text in [
            "node_load1 0.5\n",
            "lease_grants_total x\n",
            "hello\n",
            "lease_wait_seconds_bucket{le=\"7\"} 1\n",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn figures_of_several_runs_add_up() {
        let (before, mut now) = (sample(), sample());
        now.insert(metric::STALE_WRITES, String::new(), Figure::Counter(3));
        now.insert(metric::GRANTS, "engine=\"other\"".to_owned(), Figure::Counter(1));
        let mut total = sample();
        total.insert(metric::STALE_WRITES, String::new(), Figure::Counter(10));
        total.add_since(&before, &now);
        assert_eq!(total.0[metric::STALE_WRITES][""], Figure::Counter(13));
        assert_eq!(total.0[metric::GRANTS]["engine=\"other\""], Figure::Counter(1));
        assert_eq!(total.0[metric::CALL], sample().0[metric::CALL], "nothing was added there");
        assert!(!total.counting().0.contains_key(metric::HELD));
    }

    #[test]
    fn a_damaged_file_is_refused_or_can_be_added_to() {
        let near = leasehold_testkit::hostile::near(write(&sample()).as_bytes());
        let near = near.into_iter().filter_map(|text| String::from_utf8(text).ok());
        for text in near.chain(leasehold_testkit::hostile::texts()) {
            let Ok(snapshot) = read(&text) else { continue };
            let mut total = snapshot.clone();
            total.add_since(&Snapshot::default(), &snapshot);
            assert!(read(&write(&total)).is_ok(), "{text}");
        }
    }
}
