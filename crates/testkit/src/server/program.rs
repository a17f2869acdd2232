//! Where a server's program is.

use std::{
    env, io,
    path::{Path, PathBuf},
};

/// Folders that may be missing from an ordinary user's search path.
const ALSO: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Debian keeps each version of PostgreSQL in a folder of its own.
const VERSIONED: &str = "/usr/lib/postgresql";

/// Finds a program by name.
///
/// # Errors
/// When it is nowhere. Never skipped over: a test that cannot run must not look green.
pub fn find_program(name: &str) -> io::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(ALSO.iter().map(PathBuf::from));
    folders.extend(versions(Path::new(VERSIONED)));
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file()).ok_or_else(|| {
        let what = format!("the program {name} is missing; `cargo xtask test --install` installs it");
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}

/// The `bin` folders of all versions, the newest first.
fn versions(folder: &Path) -> Vec<PathBuf> {
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let entries = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(u32, PathBuf)> =
        entries.filter_map(|path| Some((version(&path)?, path.join("bin")))).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_an_error_with_its_cure() {
        find_program("sh").unwrap();
        let error = find_program("no-such-program").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("--install"), "{error}");
    }
}
