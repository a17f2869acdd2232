//! The password file of `PostgreSQL`'s own clients: `host:port:database:user:password` a line.
//!
//! A password in it stays out of URLs and process lists. As with those clients, a file that others may read is not used.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use leasehold_core::{Error, Kind};

use super::failure::Advice;

/// The password for this login, when a file has one. `named` is the URL's own setting.
///
/// # Errors
/// [`Kind::Invalid`] for a file that the URL names and that cannot be used.
pub(super) fn look_up(
    named: Option<&Path>,
    host: &str,
    port: u16,
    login: &Advice,
) -> Result<Option<String>, Error> {
    let Some(path) = named.map(Path::to_owned).or_else(usual_place) else { return Ok(None) };
    match read(&path) {
        Ok(text) => {
            // A local socket is written as localhost there.
            let host = if host.starts_with('/') { "localhost" } else { host };
            Ok(find(&text, [host, &port.to_string(), &login.database, &login.role]))
        }
        Err(_) if named.is_none() => Ok(None),
        Err(reason) => Err(Error::new(
            Kind::Invalid,
            format!(
                "cannot use the password file {}: {reason}",
                crate::address::visible(&path.to_string_lossy())
            ),
        )),
    }
}

fn usual_place() -> Option<PathBuf> {
    match std::env::var_os("PGPASSFILE") {
        Some(path) if !path.is_empty() => Some(path.into()),
        _ => Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let meta = fs::metadata(path).map_err(|reason| reason.to_string())?;
    if !meta.is_file() || meta.len() > 1 << 20 {
        return Err("it is no file of a sensible size".to_owned());
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err("others may read it; chmod 600".to_owned());
    }
    fs::read_to_string(path).map_err(|reason| reason.to_string())
}

fn find(text: &str, login: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split(line);
        let (password, pattern) = fields.split_last()?;
        let fits =
            pattern.len() == 4 && pattern.iter().zip(login).all(|(is, wanted)| is == "*" || is == wanted);
        fits.then(|| password.clone())
    })
}

/// Splits at colons; a backslash takes the next character as it is.
fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().into_iter().for_each(|field| field.extend(characters.next())),
            other => fields.last_mut().into_iter().for_each(|field| field.push(other)),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let text = "# a comment\ndb:5433:*:app:other\ndb:5432:leases:app:a\\:b\\\\c\n*:*:*:*:any\n";
        assert_eq!(find(text, ["db", "5432", "leases", "app"]).as_deref(), Some("a:b\\c"));
        assert_eq!(find(text, ["db", "5433", "x", "app"]).as_deref(), Some("other"));
        assert_eq!(find(text, ["h", "1", "x", "y"]).as_deref(), Some("any"));
        assert_eq!(find("db:5432:x", ["db", "5432", "x", "y"]), None);
    }

    #[test]
    fn no_hostile_file_makes_reading_panic_or_gives_a_password_away() {
        for text in leasehold_testkit::hostile::texts() {
            let found = find(&format!("{text}\n{text}:{text}"), ["db", "5432", "x", "y"]);
            assert!(found.is_none(), "{text}: {found:?}");
        }
    }
}
