//! Where a path leads: one file must have one name, because everything beside it (log, index, lock file) is found by name.
//!
//! Two processes that reach a file by different names would each have companions of their own, and exclude nobody. So links
//! are followed before anything is opened, and what cannot be followed (a second hard link, a file mounted by itself) is
//! refused.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{FileTypeExt as _, MetadataExt as _},
        },
    },
    path::{Path, PathBuf},
};

use leasehold_core::{Error, Kind};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, makedev, open, statat, statx},
    io::Errno,
    path::Arg,
};

use super::failure;

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

/// Device and inode: what a path points at now.
pub(super) type FileId = (u64, u64);

pub(super) fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// What `path` points at.
pub(super) fn id_at(path: &Path) -> io::Result<FileId> {
    id_in(CWD, path)
}

/// What `path` in `folder` points at. It asks for nothing else, least of all for times: a kernel that keeps fine times (Linux
/// 6.13) makes the next write to a file whose times were asked for write its inode as well, and a commit then takes half
/// as long again.
fn id_in<P: Arg + Copy>(folder: BorrowedFd<'_>, path: P) -> io::Result<FileId> {
    match statx(folder, path, AtFlags::empty(), StatxFlags::INO) {
        Ok(found) => Ok((makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino)),
        // A kernel or a sandbox of before 2017 does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let found = statat(folder, path, AtFlags::empty())?;
            Ok((found.st_dev, found.st_ino))
        }
        Err(error) => Err(error.into()),
    }
}

/// The log of the file at `path`.
pub(super) fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// The log and the index beside an open file. A process that took them away (`rm leases.db-shm`) would let others begin
/// with new ones, which know nothing of ours.
#[derive(Debug)]
pub(super) struct Companions {
    /// Where they lie. That the path still leads here is seen by the file itself.
    folder: OwnedFd,
    found: [(CString, Option<FileId>); 2],
}

impl Companions {
    /// What lies beside `path` now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let named = |suffix: &str| -> io::Result<(CString, Option<FileId>)> {
            let name = CString::new([name.as_bytes(), suffix.as_bytes()].concat())?;
            let found = id_in(folder.as_fd(), name.as_c_str()).ok();
            Ok((name, found))
        };
        let found = [named("-wal")?, named("-shm")?];
        Ok(Self { folder, found })
    }

    /// True while those that were there still are. One that has come since is fine.
    pub(super) fn are_in_place(&self) -> bool {
        let is_there = |name: &CString| id_in(self.folder.as_fd(), name.as_c_str()).ok();
        self.found.iter().all(|(name, then)| then.is_none() || is_there(name) == *then)
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
    fn both_ways_to_look_see_the_same_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(id_at(file.path()).unwrap(), file_id(&file.path().metadata().unwrap()));
        assert_eq!(id_at(Path::new("/nowhere/at/all")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_companion_that_was_taken_away_or_replaced_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let before = Companions::of(&path).unwrap();
        fs::write(folder.path().join("a.db-wal"), "").unwrap();
        let open = Companions::of(&path).unwrap();
        assert!(before.are_in_place() && open.are_in_place());
        fs::rename(folder.path().join("a.db-wal"), folder.path().join("kept")).unwrap();
        assert!(!open.are_in_place());
        fs::write(folder.path().join("a.db-wal"), "").unwrap();
        assert!(!open.are_in_place());
    }
}
