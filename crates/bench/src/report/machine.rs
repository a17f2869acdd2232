//! The machine, as far as figures depend on it. No names of hosts and no paths.

use std::{fmt::Write as _, fs, io::Write as _, path::Path, process::Command};

use leasehold_testkit::{clock::boot_ns, server::find_program};

use super::say;
use crate::task::{Failure, number};

/// The highest load average of a machine that nobody else uses: whoever starts the benchmark has just built it.
const QUIET: f64 = 2.5;

/// A few lines of Markdown. `folder` is where engines keep their files.
pub(crate) fn describe(folder: &Path, rounds: u32, quick: bool) -> String {
    let mut text = String::new();
    let sync = sync_us(folder).map_or_else(|_| "unknown".to_owned(), |us| format!("{} us", say::number(us)));
    let kernel = first_line("/proc/sys/kernel/osrelease");
    let _ = writeln!(text, "- {} processors, {}, Linux {kernel}", processors(), model());
    let _ = writeln!(
        text,
        "- files of engines on {}; one fdatasync of 4 KiB: {sync} (median of 200)",
        file_system(folder)
    );
    let load = first_line("/proc/loadavg").split(' ').next().unwrap_or("?").to_owned();
    let _ = writeln!(text, "- load average at the start: {load}{}", warning(&load));
    let _ = writeln!(text, "- {}", versions());
    let _ = writeln!(
        text,
        "- {} round{}{}; medians, in brackets the lowest and the highest; ratios taken within a round",
        rounds,
        if rounds == 1 { "" } else { "s" },
        if quick { ", `--quick`" } else { "" }
    );
    text
}

/// A machine that others use at the same time measures them.
fn warning(load: &str) -> &'static str {
    if load.parse::<f64>().is_ok_and(|load| load <= QUIET) {
        return "";
    }
    ". **The machine was busy: these figures show that the benchmark runs, and are no measure of anything**"
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or("unknown").trim().to_owned()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, std::num::NonZero::get)
}

fn model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown processor").trim().to_owned()
}

/// The kind of file system that a folder is on.
fn file_system(folder: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let on = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        folder.starts_with(at).then(|| (at.len(), kind.to_owned()))
    });
    on.max_by_key(|(length, _)| *length).map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind)
}

/// What it costs to write a page and have it on the disk.
fn sync_us(folder: &Path) -> Result<f64, Failure> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut took = Vec::new();
    for _ in 0..200 {
        let begun = boot_ns();
        file.write_all(&[7; 4_096])?;
        file.sync_data()?;
        took.push(number(boot_ns().saturating_sub(begun)) / 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took.get(took.len() / 2).copied().unwrap_or_default())
}

/// Of the engines, from their programs.
fn versions() -> String {
    let version = |program: &str, words: &[&str]| {
        let path = find_program(program).ok()?;
        let output = Command::new(path).args(words).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.split(|c: char| c.is_whitespace() || c == '=')
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
            .map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned())
    };
    let say = |name: &str, program: &str| {
        format!("{name} {}", version(program, &["--version"]).unwrap_or_else(|| "missing".to_owned()))
    };
    let engines = [say("Redis", "redis-server"), say("etcd", "etcd"), say("PostgreSQL", "postgres")];
    engines.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_called_busy() {
        assert_eq!(warning("0.31"), "");
        assert!(warning("8.61").contains("busy") && warning("?").contains("busy"));
    }

    #[test]
    fn the_machine_is_described_without_its_name_and_without_paths() {
        let folder = tempfile::tempdir().unwrap();
        let text = describe(folder.path(), 3, false);
        let host = first_line("/proc/sys/kernel/hostname");
        assert!(!text.contains(&folder.path().display().to_string()) && !text.contains("/tmp"), "{text}");
        assert!(host.len() < 4 || !text.contains(&host), "{text}");
        assert!(
            text.contains("processors") && text.contains("fdatasync") && text.contains("3 rounds"),
            "{text}"
        );
    }
}
