//! The process tree below us: walking it, signalling all of it, killing all of it.
//!
//! The caller is a child subreaper: a descendant whose parent dies becomes our child, whatever session or group it
//! has moved to, so nothing leaves this tree but by dying. `wait` answering "no child" is therefore the proof that all
//! are dead; the walk through /proc only finds whom to signal, and may miss one that moves while we look. It is
//! found in the next round.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::Duration;

use super::clock::boottime_ns;
use super::event::Process;
use super::sys::process::{Change, Handle, Waited, wait};
use super::sys::signal::send;

/// How many survivors are named: enough for a person, and it must fit in a packet.
const NAMED: usize = 256;

/// Rounds of freezing. Each catches what was born or moved in the one before; a frozen process bears no children, so
/// few are needed, and this is only a bound for what never holds still.
const ROUNDS: usize = 16;

/// First and longest pause between two rounds of killing; the end of a child cuts a pause short.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What `/proc/PID/stat` says that matters here.
#[derive(Clone, Debug)]
pub(super) struct Stat {
    pub(super) name: String,
    pub(super) parent: i32,
    state: u8,
    threads: usize,
    /// When it began, in clock ticks since boot: with the pid, its identity.
    began: u64,
}

impl Stat {
    pub(super) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The name stands in parentheses and may contain any byte, parentheses too.
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let threads = fields.nth(15)?.parse().ok()?;
        let began = fields.nth(1)?.parse().ok()?;
        Some(Self { name, parent, state, threads, began })
    }

    /// Ended, waiting for its parent. (A process whose first thread has ended also shows as a zombie.)
    fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state == b'T'
    }
}

/// Sends the signals, in order and once, to everything that is below us now.
///
/// Not to what is born meanwhile: that may be the clean-up with which a process answers the signal.
pub(super) fn signal_all(signals: &[i32]) {
    let mut all = members();
    // A second look, because somebody may have lost its parent, and so moved up past us, during the first.
    let known: HashSet<Identity> = all.iter().copied().collect();
    all.extend(members().into_iter().filter(|member| !known.contains(member)));
    for member in all {
        deliver(member, signals);
    }
}

/// What came of killing everything.
#[derive(Debug)]
pub(super) struct Killed {
    /// `wait` has said that there is no child left. Nothing else is a proof.
    pub(super) all_dead: bool,
    /// What is still alive; never empty unless all are dead.
    pub(super) left: Vec<Process>,
}

/// Everything below us that is alive, to be called when `wait` has not said that there is no child left. Where /proc shows
/// only a user's own processes (`hidepid`), something may be there that cannot be seen: it is one without a name then.
pub(super) fn left() -> Vec<Process> {
    let seen = living();
    if seen.is_empty() { vec![Process { pid: 0, name: String::new() }] } else { seen }
}

/// Everything below us that can be seen and is alive.
pub(super) fn living() -> Vec<Process> {
    let mut all = Vec::new();
    walk(|pid, stat| {
        if !stat.is_dead() && all.len() < NAMED {
            all.push(Process { pid, name: stat.name.clone() });
        }
    });
    all
}

/// Kills everything below us, and waits until it is dead or `until_ns` has come.
///
/// Every change of a child is given to `on_change`; `pause` waits for the given time, or for less if a child died.
/// Some of it may live on: another user's, or stuck in the kernel.
pub(super) fn kill_all(
    until_ns: u64,
    mut pause: impl FnMut(Duration) -> io::Result<()>,
    mut on_change: impl FnMut(i32, Change),
) -> io::Result<Killed> {
    freeze(until_ns);
    let mut length = PAUSE;
    loop {
        for member in members() {
            deliver(member, &[libc::SIGKILL]);
        }
        if all_reaped(&mut on_change)? {
            return Ok(Killed { all_dead: true, left: Vec::new() });
        }
        let now = boottime_ns();
        if now >= until_ns {
            let seen = living();
            // What was not seen may have died just before the look.
            if seen.is_empty() && all_reaped(&mut on_change)? {
                return Ok(Killed { all_dead: true, left: Vec::new() });
            }
            return Ok(Killed { all_dead: false, left: if seen.is_empty() { left() } else { seen } });
        }
        pause(length.min(Duration::from_nanos(until_ns - now)).max(PAUSE))?;
        length = (length * 2).min(LONGEST_PAUSE);
    }
}

/// Takes in every change there is; true when no child is left.
fn all_reaped(on_change: &mut impl FnMut(i32, Change)) -> io::Result<bool> {
    loop {
        match wait()? {
            Waited::Changed(pid, change) => on_change(pid, change),
            Waited::Nothing => return Ok(false),
            Waited::NoChild => return Ok(true),
        }
    }
}

/// Stops everything below us. A supervisor inside the tree must not see its workers die one by one and start new
/// ones, and a fork bomb must not outrun us. At most half of the time is spent on this; killing matters more.
fn freeze(until_ns: u64) {
    let start = boottime_ns();
    let enough = start.saturating_add(until_ns.saturating_sub(start) / 2);
    let mut frozen = HashSet::new();
    for _ in 0..ROUNDS {
        let members = members();
        for member in &members {
            deliver(*member, &[libc::SIGSTOP]);
        }
        let before = frozen.len();
        frozen.extend(members);
        if frozen.len() == before || boottime_ns() >= enough {
            return;
        }
    }
}

/// A process that cannot be mistaken for a later one of the same number.
type Identity = (i32, u64);

/// Everything below us, parents before children. Signalled only after the walk: a parent that dies under it would take
/// its children out of sight.
fn members() -> Vec<Identity> {
    let mut all = Vec::new();
    walk(|pid, stat| all.push((pid, stat.began)));
    all
}

/// Signals a process that we saw, and only that one: since the look it may have died and its number may have gone to
/// a stranger. A refusal is no error here: whoever refuses will be among the survivors.
fn deliver((pid, began): Identity, signals: &[i32]) {
    match Handle::open(pid) {
        Ok(Some(handle)) => {
            // The handle is fixed to a process now, so what is true of it here stays true.
            if Stat::read(pid).is_none_or(|stat| stat.began != began) {
                return;
            }
            for signo in signals {
                let _refused = handle.send(*signo);
            }
        }
        Ok(None) => {
            for signo in signals {
                let _refused = send(pid, *signo);
            }
        }
        Err(_gone) => {}
    }
}

/// Calls `visit` for everything below us, parents before children.
fn walk(mut visit: impl FnMut(i32, &Stat)) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let snapshot = if kernel_lists_children() { None } else { Some(all_by_parent()) };
    let mut met = HashSet::from([own]);
    let mut pending = vec![(own, usize::MAX)];
    while let Some((parent, threads)) = pending.pop() {
        let children = match &snapshot {
            Some(by_parent) => by_parent.get(&parent).cloned().unwrap_or_default(),
            None => children(parent, threads),
        };
        for pid in children {
            // A stranger's number, or one that has moved up in the tree: the next round sees it where it is.
            let Some(stat) = Stat::read(pid).filter(|stat| stat.parent == parent) else { continue };
            if met.insert(pid) {
                visit(pid, &stat);
                pending.push((pid, stat.threads));
            }
        }
    }
}

/// The children of every thread of a process.
fn children(pid: i32, threads: usize) -> Vec<i32> {
    let of_thread =
        |tid: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    let texts: Vec<String> = if threads == 1 {
        vec![of_thread(&pid.to_string())]
    } else {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.map(|task| of_thread(&task.file_name().to_string_lossy())).collect()
    };
    texts.iter().flat_map(|text| text.split_ascii_whitespace()).filter_map(|word| word.parse().ok()).collect()
}

/// Kernels without `CONFIG_PROC_CHILDREN` have no such file.
fn kernel_lists_children() -> bool {
    fs::exists(format!("/proc/self/task/{}/children", std::process::id())).unwrap_or(false)
}

/// The slow way: every process of the machine, by parent.
fn all_by_parent() -> HashMap<i32, Vec<i32>> {
    let mut by_parent: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        if let Some(stat) = Stat::read(pid) {
            by_parent.entry(stat.parent).or_default().push(pid);
        }
    }
    by_parent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hostile_line_makes_reading_panic() {
        let line = b"7 (a) S 1) T 42 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 100 0 0\n";
        let near = leasehold_testkit::hostile::near(line);
        for line in near.into_iter().chain(leasehold_testkit::hostile::bytes()) {
            drop(Stat::parse(&line));
        }
    }

    #[test]
    fn a_name_with_parentheses_is_read_whole() {
        let line = b"7 (a) S 1) T 42 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 100 0 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.threads, stat.began), ("a) S 1", 42, 3, 100));
        assert!(stat.is_stopped() && !stat.is_dead());
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_not_dead() {
        let line =
            |threads: &str| format!("7 (a) Z 42 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 100 0 0\n");
        assert!(Stat::parse(line("0").as_bytes()).unwrap().is_dead());
        assert!(!Stat::parse(line("2").as_bytes()).unwrap().is_dead());
    }

    #[test]
    fn both_ways_find_the_same_children() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(children(own, usize::MAX).contains(&pid));
        assert!(all_by_parent()[&own].contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_stranger_under_a_recycled_number_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let began = Stat::read(pid).unwrap().began;
        deliver((pid, began - 1), &[libc::SIGKILL]);
        assert_eq!(child.try_wait().unwrap(), None);
        deliver((pid, began), &[libc::SIGKILL]);
        assert!(!child.wait().unwrap().success());
    }
}
