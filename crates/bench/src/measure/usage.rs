//! Processor time and memory, as the kernel counts them.

use std::{collections::BTreeMap, fs};

use crate::task::number;

/// `USER_HZ` is 100 on every Linux.
const TICKS: f64 = 100.0;
/// The page size of the machines that we publish figures of.
const PAGE: f64 = 4_096.0;

/// Seconds of processor time of these processes and of all that descend from them, ended ones included.
pub(super) fn processor_seconds(pids: &[u32]) -> f64 {
    let all = everybody();
    let mut of = pids.to_vec();
    let mut at = 0;
    while let Some(&parent) = of.get(at) {
        of.extend(all.iter().filter(|(_, process)| process.parent == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    of.iter().filter_map(|pid| all.get(pid)).map(|process| process.ticks).sum::<f64>() / TICKS
}

/// Of this process.
pub(super) fn own_seconds() -> f64 {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| parse(&stat)).map_or(0.0, |own| own.ticks)
        / TICKS
}

/// Bytes of memory that this process occupies.
pub(super) fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    number(pages.unwrap_or(0)) * PAGE
}

/// The processes that this one has started and that still run.
pub(crate) fn own_children() -> Vec<u32> {
    let own = std::process::id();
    everybody().into_iter().filter(|(_, process)| process.parent == own).map(|(pid, _)| pid).collect()
}

struct Process {
    parent: u32,
    ticks: f64,
}

fn everybody() -> BTreeMap<u32, Process> {
    let Ok(folder) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let processes = folder.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    });
    processes.collect()
}

/// A line such as `7 (name) S 1 …`; the name may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Of itself and of children that it has waited for, in user and system mode.
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_behind_its_name() {
        let line = "42 (a ) b) S 7 42 42 0 -1 4194304 100 0 0 0 30 12 5 3 20 0 1 0 99 0 0";
        let process = parse(line).unwrap();
        assert_eq!(process.parent, 7);
        assert!((process.ticks - 50.0).abs() < 1e-9);
        assert!(parse("").is_none());
    }

    #[test]
    fn descendants_count() {
        let own = processor_seconds(&[std::process::id()]);
        assert!(own >= 0.0 && processor_seconds(&[1]) >= 0.0 && resident() > 1e5);
    }
}
