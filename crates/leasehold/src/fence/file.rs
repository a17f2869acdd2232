//! A file that is replaced as a whole: written beside its place, moved there in one step.
//!
//! Together with [`Fence::admit_and`](super::Fence::admit_and) it is a fence for files: the move is made in one step with the
//! answer, so that a reader sees the old content or the new, and never that of a holder who was overtaken.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use leasehold_core::{Error, Kind};

use crate::random;

/// The new content of a file, not in its place yet. Dropping it removes it.
#[derive(Debug)]
pub struct Draft {
    target: PathBuf,
    path: PathBuf,
    file: File,
    placed: bool,
}

impl Draft {
    /// An empty draft for the file at `target`, which need not be there. A symbolic link is followed: what it points at is
    /// replaced, and the link stays.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a target that is no regular file, [`Kind::Denied`] and [`Kind::Unavailable`] as the system says.
    pub fn of(target: &Path) -> Result<Self, Error> {
        let target = match fs::canonicalize(target) {
            Ok(found) => found,
            // Not there yet: its folder must be.
            Err(error) if error.kind() == io::ErrorKind::NotFound => absent(target)?,
            Err(error) => return Err(failed("cannot look at", target, &error)),
        };
        let existing = match fs::metadata(&target) {
            Ok(found) if found.is_file() => Some(found),
            Ok(_) => {
                return Err(Error::new(Kind::Invalid, format!("{} is no regular file", shown(&target)))
                    .advise("it was left as it is; only a file can be replaced as a whole"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("cannot look at", &target, &error)),
        };
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        // Long names leave no room for more.
        let mut name = if name.len() > 200 { OsString::from(".leasehold") } else { name };
        name.push(format!(".{}", random::lease_id()?));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if existing.is_some() {
            // Until it has the mode of the file that it replaces, it is nobody else's to read.
            options.mode(0o600);
        }
        let file = options.open(&path).map_err(|error| failed("cannot write beside", &target, &error))?;
        let draft = Self { target, path, file, placed: false };
        if let Some(existing) = existing {
            let mode = Permissions::from_mode(existing.mode() & 0o7777);
            let set = draft.file.set_permissions(mode);
            set.map_err(|error| failed("cannot write beside", &draft.target, &error))?;
        }
        Ok(draft)
    }

    /// Where to write the content.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What it is to replace, links followed.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Puts the content onto the disk, before [`Draft::place`]: this may take as long as the content is large.
    ///
    /// # Errors
    /// [`Kind::Unavailable`]: nothing was replaced.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(|error| failed("cannot write beside", &self.target, &error))
    }

    /// Moves it into place.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when nothing was replaced, [`Kind::Unknown`] when it was and the disk may not have kept that.
    pub fn place(mut self) -> Result<(), Error> {
        fs::rename(&self.path, &self.target)
            .map_err(|error| failed("cannot replace", &self.target, &error))?;
        self.placed = true;
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        let kept = File::open(folder).and_then(|folder| folder.sync_all());
        kept.map_err(|error| {
            failed("the disk may not have kept the replacement of", &self.target, &error).unknown()
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            // Litter at worst: its name says whose.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn absent(target: &Path) -> Result<PathBuf, Error> {
    // A link that points nowhere would be replaced instead of followed.
    if fs::symlink_metadata(target).is_ok() {
        return Err(Error::new(Kind::Invalid, format!("{} is a link that points nowhere", shown(target)))
            .advise("make the file that it points at, or remove the link"));
    }
    let (Some(name), Ok(whole)) = (target.file_name(), std::path::absolute(target)) else {
        return Err(Error::new(Kind::Invalid, format!("{} is no path of a file", shown(target))));
    };
    let folder = whole.parent().unwrap_or(Path::new("/"));
    let folder =
        fs::canonicalize(folder).map_err(|error| failed("there is no folder for", target, &error))?;
    Ok(folder.join(name))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => Kind::Invalid,
        _ => Kind::Unavailable,
    };
    Error::new(kind, format!("{doing} {}: {error}", shown(path)))
}

fn shown(path: &Path) -> String {
    crate::address::visible(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write as _, os::unix::fs::symlink};

    fn replace(path: &Path, text: &str) -> Result<(), Error> {
        let draft = Draft::of(path)?;
        draft.file().write_all(text.as_bytes()).unwrap();
        draft.sync()?;
        draft.place()
    }

    #[test]
    fn a_draft_replaces_all_or_nothing_and_leaves_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        replace(&path, "one").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let dropped = Draft::of(&path).unwrap();
        dropped.file().write_all(b"three").unwrap();
        drop(dropped);
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let long = folder.path().join("x".repeat(255));
        replace(&long, "long").unwrap();
    }

    #[test]
    fn links_are_followed_and_what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "one").unwrap();
        symlink("file", at("link")).unwrap();
        replace(&at("link"), "two").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "two");
        symlink("nowhere", at("dangling")).unwrap();
        for bad in [at("dangling"), folder.path().to_owned(), at("no/folder"), "/dev/null".into(), "/".into()]
        {
            assert_eq!(replace(&bad, "x").unwrap_err().kind(), Kind::Invalid, "{}", bad.display());
        }
    }
}
