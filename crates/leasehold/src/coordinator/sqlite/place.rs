//! Where a path leads: one file must have one name, because everything beside it (log, index, lock file) is found by name.
//!
//! Two processes that reach a file by different names would each have companions of their own, and exclude nobody. So links
//! are followed before anything is opened, and what cannot be followed (a second hard link, a file mounted by itself) is
//! refused.

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use leasehold_core::{Error, Kind};

use super::{
    failure,
    gate::{FileId, file_id},
};

/// Symbolic links followed before a path is called a loop: the kernel's own figure.
const MAX_LINKS: u32 = 40;

/// The one name of the file at `path`, whether or not it is there yet.
///
/// # Errors
/// [`Kind::Invalid`] for what is no regular file, or has other names.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let failed = |error: io::Error| failure::from_io("cannot look at the lease file", &error);
    let mut path = std::path::absolute(path).map_err(failed)?;
    let mut links = 0;
    let found = loop {
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() && links < MAX_LINKS => {
                links += 1;
                let target = fs::read_link(&path).map_err(failed)?;
                // A relative target is meant from the folder of the link.
                path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
            }
            Ok(found) => break Some(found),
            // Neither the file nor, perhaps, its folder is there yet. Other failures are told by whoever opens it.
            Err(_) => break None,
        }
    };
    if let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && let Ok(folder) = fs::canonicalize(folder)
    {
        path = folder.join(name);
    }
    if let Some(found) = found {
        judge(&path, &found)?;
    }
    Ok(path)
}

fn judge(path: &Path, found: &fs::Metadata) -> Result<(), Error> {
    let kind = found.file_type();
    let refuse = |what: &str, advice: &'static str| Err(Error::new(Kind::Invalid, what).advise(advice));
    if !found.is_file() {
        let what = match () {
            () if found.is_dir() => "the path is a folder",
            () if found.is_symlink() => "the path is a loop of symbolic links",
            () if kind.is_fifo() || kind.is_socket() => "the path is a pipe or a socket",
            () => "the path is a device",
        };
        return refuse(what, "it was left as it is; give the path of a file in a folder");
    }
    if found.nlink() > 1 {
        return refuse(
            "the lease file has more than one name (hard links), and processes that use different names would not exclude each other",
            "remove the other names, or use symbolic links instead",
        );
    }
    if is_mount_point(path) {
        return refuse(
            "the lease file is mounted by itself, and processes that use its other name would not be excluded",
            "mount its folder instead",
        );
    }
    Ok(())
}

/// True when something is mounted on this very path.
fn is_mount_point(path: &Path) -> bool {
    // Without /proc nothing can be said; a folder is what people mount.
    let Ok(mounts) = fs::read("/proc/self/mountinfo") else { return false };
    let path = path.as_os_str().as_bytes();
    mounts.split(|&byte| byte == b'\n').any(|line| line.split(|&byte| byte == b' ').nth(4) == Some(path))
}

/// The log and the index beside an open file. A process that took them away (`rm leases.db-shm`) would let others begin
/// with new ones, which know nothing of ours.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Companions([Option<FileId>; 2]);

impl Companions {
    /// What lies beside `path` now.
    pub(super) fn of(path: &Path) -> Self {
        Self(["-wal", "-shm"].map(|suffix| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            fs::metadata(name).ok().map(|found| file_id(&found))
        }))
    }

    /// True while those that were there still are. One that has come since is fine.
    pub(super) fn are_in(self, now: Self) -> bool {
        self.0.iter().zip(now.0).all(|(then, now)| then.is_none() || *then == now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn refusal(path: &Path) -> String {
        resolve(path).unwrap_err().to_string()
    }

    #[test]
    fn links_lead_to_the_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("t.db");
        let link = folder.path().join("l.db");
        symlink("t.db", &link).unwrap();
        assert_eq!(resolve(&link).unwrap(), real, "a dangling link leads to where the file will be");
        fs::write(&real, "").unwrap();
        assert_eq!(resolve(&link).unwrap(), real);
        fs::create_dir(folder.path().join("sub")).unwrap();
        symlink(folder.path(), folder.path().join("sub/up")).unwrap();
        assert_eq!(resolve(&folder.path().join("sub/up/./l.db")).unwrap(), real);
        assert_eq!(resolve(&folder.path().join("new/x.db")).unwrap(), folder.path().join("new/x.db"));
    }

    #[test]
    fn what_is_no_file_of_one_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        assert!(refusal(&at("a")).contains("more than one name"));
        symlink("loop", at("loop")).unwrap();
        assert!(refusal(&at("loop")).contains("loop"));
        assert!(refusal(folder.path()).contains("folder"));
        assert!(refusal(Path::new("/dev/null")).contains("device"));
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(refusal(&at("pipe")).contains("pipe"));
    }

    #[test]
    fn a_companion_that_was_taken_away_or_replaced_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let before = Companions::of(&path);
        fs::write(folder.path().join("a.db-wal"), "").unwrap();
        let open = Companions::of(&path);
        assert!(before.are_in(open) && open.are_in(open));
        fs::rename(folder.path().join("a.db-wal"), folder.path().join("kept")).unwrap();
        assert!(!open.are_in(Companions::of(&path)));
        fs::write(folder.path().join("a.db-wal"), "").unwrap();
        assert!(!open.are_in(Companions::of(&path)));
    }
}
