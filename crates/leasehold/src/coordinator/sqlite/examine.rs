//! Is this file fit to be trusted? Looks at it and its surroundings, and makes nothing.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use leasehold_core::{Error, Namespace};
use nix::sys::statvfs::statvfs;
use rusqlite::Connection;

use super::{failure, filesystem, open, place, schema};
use crate::doctor::{Finding, Verdict};

/// Below this much room on the disk, a commit may soon fail (ours: a thousand times an ordinary log).
const LITTLE_ROOM: u64 = 4 << 30;
/// A log that has grown to this is not being moved into the database: some reader never ends (ours: sixteen times the size at
/// which it is moved).
const LONG_LOG: u64 = 64 << 20;

/// Examines the file at `path`.
///
/// # Errors
/// As [`super::SqliteCoordinator::open`], for what cannot be a lease file at all.
pub(crate) fn examine(path: &Path, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
    let path = place::resolve(path)?;
    let folder = nearest(&path);
    let mut findings = vec![file_system(&folder), permissions_of(&folder, "folder")];
    findings.extend(room(&folder));
    if schema::nature(&path)? == schema::Nature::Absent {
        findings.push(Finding::fine("file", "tokens", "there is none yet; the first use makes it"));
        return Ok(findings);
    }
    findings.push(permissions_of(&path, "file"));
    findings.extend(log(&path));
    match open::connect(&path) {
        Ok((connection, _in_use)) => findings.extend(content(&connection, namespace)),
        Err(error) => findings.push(Finding::new(
            Verdict::Fault,
            "file",
            "tokens",
            error.what().to_owned(),
            error.advice().unwrap_or(failure::REPAIR).to_owned(),
        )),
    }
    Ok(findings)
}

/// The folder of the file, or the one above it that is there.
fn nearest(path: &Path) -> PathBuf {
    let there = |folder: &&Path| folder.is_dir();
    path.ancestors().skip(1).find(there).unwrap_or(Path::new("/")).to_owned()
}

fn file_system(folder: &Path) -> Finding {
    match filesystem::judge(folder) {
        Ok(filesystem::Trust::Local) => Finding::fine("file system", "windows", "local to this machine"),
        Ok(filesystem::Trust::Unknown) => Finding::new(
            Verdict::Warning,
            "file system",
            "windows",
            "of a kind that is not known to be local to this machine",
            "make sure that no other machine mounts it; on ext4, xfs, btrfs, zfs, tmpfs or overlay a reboot also frees at once",
        ),
        Err(error) => Finding::new(
            Verdict::Fault,
            "file system",
            "windows",
            error.what().to_owned(),
            error.advice().unwrap_or("put the file on a local disk").to_owned(),
        ),
    }
}

/// Whoever may write the file may grant himself everything.
fn permissions_of(path: &Path, what: &'static str) -> Finding {
    let Ok(meta) = fs::metadata(path) else {
        return Finding::new(
            Verdict::Fault,
            what,
            "tokens",
            format!("{} cannot be looked at by this user", path.display()),
            "give this user access, or use another place",
        );
    };
    let mode = meta.permissions().mode();
    // In a folder with the sticky bit (/tmp) others can add files and take none away.
    let sticky = meta.is_dir() && mode & 0o1000 != 0;
    let by = match mode & 0o022 {
        _ if sticky => None,
        0 => None,
        bits if bits & 0o002 != 0 => Some("every user"),
        _ => Some("its group"),
    };
    let fact = format!("{} (mode {:03o})", path.display(), mode & 0o777);
    match by {
        None => Finding::fine(what, "tokens", fact),
        Some(by) => Finding::new(
            Verdict::Warning,
            what,
            "tokens",
            format!("{fact} can be written by {by}"),
            "take the write permission away from all who are not to end or take leases",
        ),
    }
}

fn room(folder: &Path) -> Option<Finding> {
    let found = statvfs(folder).ok()?;
    // The types of these two differ between architectures.
    #[allow(clippy::useless_conversion, reason = "the types differ between architectures")]
    let free = u64::from(found.blocks_available()).saturating_mul(u64::from(found.fragment_size()));
    let fact = format!("{} MiB free", free >> 20);
    Some(if free >= LITTLE_ROOM {
        Finding::fine("disk", "renewals", fact)
    } else {
        let cure = "make room: on a full disk nothing is granted or renewed";
        Finding::new(Verdict::Note, "disk", "renewals", fact, cure)
    })
}

fn log(path: &Path) -> Option<Finding> {
    let mut name = path.file_name()?.to_owned();
    name.push("-wal");
    let length = fs::metadata(path.with_file_name(name)).ok()?.len();
    let fact = format!("{} KiB", length >> 10);
    Some(if length < LONG_LOG {
        Finding::fine("log", "speed", fact)
    } else {
        let cure =
            "find the program that keeps a read open on the file: the log cannot be moved along meanwhile";
        Finding::new(Verdict::Warning, "log", "speed", fact, cure)
    })
}

fn content(connection: &Connection, namespace: &Namespace) -> Vec<Finding> {
    let damage: Result<String, _> =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    let health = match damage {
        Ok(said) if said == "ok" => Finding::fine("content", "tokens", "the database is undamaged"),
        Ok(said) => Finding::new(Verdict::Fault, "content", "tokens", said, failure::REPAIR),
        Err(error) => {
            let error = failure::from_sql("cannot read the lease file", &error);
            Finding::new(Verdict::Fault, "content", "tokens", error.what().to_owned(), failure::REPAIR)
        }
    };
    let bound: Result<i64, _> =
        connection.query_row("SELECT max_ttl_ms FROM space WHERE name = ?1", [namespace.as_str()], |row| {
            row.get(0)
        });
    let bound = match bound {
        Ok(ms) => format!("{namespace} allows TTLs up to {}s", ms / 1_000),
        Err(_) => format!("{namespace} is not made yet; the first use makes it"),
    };
    let durable =
        Finding::fine("durability", "tokens", "every commit is synced (write-ahead log, synchronous = FULL)");
    vec![health, durable, Finding::fine("namespace", "windows", bound)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::sqlite::{Options, SqliteCoordinator};

    fn examined(path: &Path) -> Vec<Finding> {
        examine(path, &Namespace::default()).unwrap()
    }

    fn of<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.subject == subject).unwrap()
    }

    #[test]
    fn a_file_in_order_is_fine_and_one_open_to_all_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let coordinator = SqliteCoordinator::open(&path, Namespace::default(), Options::default()).unwrap();
        let findings = examined(&path);
        assert!(findings.iter().all(|finding| finding.verdict < Verdict::Warning), "{findings:?}");
        assert!(of(&findings, "content").fact.contains("undamaged"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let findings = examined(&path);
        let open = of(&findings, "file");
        assert!(open.verdict == Verdict::Warning && open.fact.contains("every user"), "{open:?}");
        drop(coordinator);
    }

    #[test]
    fn a_damaged_file_is_a_fault_with_its_cure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        drop(SqliteCoordinator::open(&path, Namespace::default(), Options::default()).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let wal = fs::read(folder.path().join("leases.db-wal")).unwrap_or_default();
        assert!(wal.is_empty() || !bytes.is_empty());
        // Behind the header, which says that the file is ours.
        bytes[100..].fill(0xA5);
        fs::write(&path, &bytes).unwrap();
        let _ = fs::remove_file(folder.path().join("leases.db-wal"));
        let findings = examined(&path);
        let fault = findings.iter().find(|finding| finding.verdict == Verdict::Fault).unwrap();
        assert!(fault.cure.is_some(), "{fault:?}");
    }
}
