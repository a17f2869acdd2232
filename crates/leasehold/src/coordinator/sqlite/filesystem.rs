//! Which file systems can carry a lease file.
//!
//! SQLite's WAL needs memory shared by all its users and locks that really exclude; a file system that other machines
//! can mount gives neither. Those are refused by name. A short list of local ones is trusted further: what lies there
//! can only have been written by this machine, so another boot id in the file means a reboot.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use leasehold_core::{Error, Kind};
use nix::sys::statfs::statfs;

/// How far a file system can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// No other machine writes it while this one does.
    Local,
    /// Unknown to us; used, without conclusions about reboots.
    Unknown,
}

/// Magic numbers of statfs(2), from the kernel's `include/uapi/linux/magic.h` and the file systems' own sources.
const LOCAL: &[(i64, &str)] = &[
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0x0102_1994, "tmpfs"),
    (0x794C_7630, "overlay"),
    (0xF2F5_2010, "f2fs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x8584_58F6, "ramfs"),
];
const NETWORK: &[(i64, &str)] = &[
    (0x6969, "nfs"),
    (0x517B, "smb"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "ceph"),
    (0x0BD0_0BD0, "lustre"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x564C, "ncp"),
    (0x7461_636F, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "fhgfs"),
    (0x786F_4256, "vboxsf"),
];
const FUSE: i64 = 0x6573_5546;
/// FUSE file systems that are known to keep their files on this machine; the others may reach anywhere.
const LOCAL_FUSE: &[&str] =
    &["fuse.fuse-overlayfs", "fuseblk", "fuse.bindfs", "fuse.mergerfs", "fuse.gocryptfs"];

/// Judges the file system under `folder`.
///
/// # Errors
/// [`Kind::Unsupported`] for one that other machines can mount; [`Kind::Unavailable`] when it cannot be asked.
pub(super) fn judge(folder: &Path) -> Result<Trust, Error> {
    let found = statfs(folder).map_err(|errno| {
        Error::new(
            Kind::Unavailable,
            format!("cannot ask about the file system of {}: {errno}", folder.display()),
        )
    })?;
    // 32-bit magic numbers come sign-extended on some architectures.
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures and C libraries")]
    let magic = (found.filesystem_type().0 as i64) & 0xFFFF_FFFF;
    verdict(magic, || mount_type(folder)).map_err(|name| refusal(&name, folder))
}

fn verdict(magic: i64, mount_type: impl FnOnce() -> Option<String>) -> Result<Trust, String> {
    let named =
        |list: &[(i64, &'static str)]| list.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name);
    if let Some(name) = named(NETWORK) {
        return Err(name.to_owned());
    }
    if magic == FUSE {
        return match mount_type() {
            Some(name) if !LOCAL_FUSE.contains(&name.as_str()) => Err(name),
            _ => Ok(Trust::Unknown),
        };
    }
    Ok(if named(LOCAL).is_some() { Trust::Local } else { Trust::Unknown })
}

fn refusal(name: &str, folder: &Path) -> Error {
    let what = format!(
        "{} is on a file system ({name}) that other machines may use too, where file locks and shared memory do not exclude",
        folder.display()
    );
    Error::new(Kind::Unsupported, what)
        .advise("put the file on a local disk, or use a server engine to coordinate several machines")
}

/// The type of the mount that `folder` is on, as `/proc/self/mountinfo` names it.
fn mount_type(folder: &Path) -> Option<String> {
    let device = fs::metadata(folder).ok()?.dev();
    let wanted = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(wanted.as_str()))?;
    line.split(" - ").nth(1)?.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_is_trusted_network_is_refused_and_the_rest_is_used_with_care() {
        assert_eq!(verdict(0xEF53, || None), Ok(Trust::Local));
        assert_eq!(verdict(0x6969, || None), Err("nfs".to_owned()));
        assert_eq!(verdict(0x1234, || None), Ok(Trust::Unknown));
        assert_eq!(verdict(FUSE, || Some("fuse.sshfs".to_owned())), Err("fuse.sshfs".to_owned()));
        assert_eq!(verdict(FUSE, || Some("virtiofs".to_owned())), Err("virtiofs".to_owned()));
        assert_eq!(verdict(FUSE, || Some("fuse.fuse-overlayfs".to_owned())), Ok(Trust::Unknown));
        let text = refusal("nfs", Path::new("/mnt")).to_string();
        assert!(text.contains("nfs") && text.contains("local disk"), "{text}");
    }

    #[test]
    fn memory_file_systems_are_local() {
        assert_eq!(judge(Path::new("/dev/shm")), Ok(Trust::Local));
        assert_eq!(mount_type(Path::new("/proc")).as_deref(), Some("proc"));
    }
}
