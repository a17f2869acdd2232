//! The checked arguments of every verb: flags over environment over file, each value judged once.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use leasehold::{Label, LeaseId, Namespace, Resource, Token, Url, settings::Rules};

use crate::{
    args::Global,
    config::{self, Config, Lookup},
    failure::Failure,
    output::Output,
};

/// The longest URL in a file, in bytes (ours: a hundred times a long one).
const MAX_URL: u64 = 64 * 1_024;

/// What every verb needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The coordinator. May carry credentials: never print it.
    pub(crate) url: String,
    /// True when nobody said which coordinator to ask.
    pub(crate) is_default_place: bool,
    pub(crate) namespace: Namespace,
    /// What `--holder` or the file says; a verb has its own default.
    pub(crate) holder: Option<Label>,
    /// What leases are asked with where no option says: from the file, so that it changes without anybody changing a command
    /// line.
    pub(crate) rules: Rules,
    /// Where the configuration file is, or would be.
    pub(crate) file: Option<PathBuf>,
    pub(crate) output: Output,
}

/// An environment variable of this process; an empty one counts as absent.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Settings {
    /// Checks what was typed, with what the environment and the file add.
    pub(crate) fn check(global: &Global, output: Output, variable: Lookup<'_>) -> Result<Self, Failure> {
        let config = config::load(global.config.as_deref(), variable)?;
        let named = url(global, &config, variable)?;
        let is_default_place = named.is_none();
        let url = named.unwrap_or_else(|| "sqlite:".to_owned());
        if let Url::Memory { .. } = Url::parse(&url)? {
            return Err(Failure::usage("memory: is a store inside one process, and this process ends")
                .advise("use sqlite:PATH for a file"));
        }
        let namespace = match &global.namespace {
            Some(name) => Some(name.clone()),
            None => text("LEASEHOLD_NAMESPACE", variable)?.or(config.namespace),
        };
        let namespace = namespace.map_or(Ok(Namespace::default()), |name| Namespace::new(&name))?;
        let holder = global.holder.as_ref().or(config.holder.as_ref());
        let holder = holder.map(|label| Label::new(label)).transpose()?;
        let file = config::place(global.config.as_deref(), variable);
        Ok(Self { url, is_default_place, namespace, holder, rules: config.rules, file, output })
    }
}

/// A URL in a file that only some may read wins over one in the environment: a command started by `run` gets both, and
/// the one in the environment has lost its credentials.
fn url(global: &Global, config: &Config, variable: Lookup<'_>) -> Result<Option<String>, Failure> {
    if let Some(url) = &global.url {
        return Ok(Some(url.clone()));
    }
    if let Some(path) = variable("LEASEHOLD_URL_FILE") {
        let read = read_short(Path::new(&path)).map_err(|error| {
            Failure::usage(format!("LEASEHOLD_URL_FILE: cannot read {}: {error}", path.to_string_lossy()))
        })?;
        return Ok(Some(read.trim().to_owned()));
    }
    Ok(text("LEASEHOLD_URL", variable)?.or_else(|| config.url.clone()))
}

/// One line from a file, a URL or a secret: a regular one, and of a sensible length.
pub(crate) fn read_short(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(MAX_URL + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_URL {
        return Err(io::Error::other("it is too long for one line"));
    }
    Ok(text)
}

/// An environment variable that must be UTF-8.
pub(crate) fn text(name: &str, variable: Lookup<'_>) -> Result<Option<String>, Failure> {
    let value = variable(name).map(OsString::into_string).transpose();
    value.map_err(|_| Failure::usage(format!("{name} is not UTF-8")))
}

/// A resource's name.
pub(crate) fn resource(name: &str) -> Result<Resource, Failure> {
    Ok(Resource::new(name)?)
}

/// A fencing token.
pub(crate) fn token(text: &str) -> Result<Token, Failure> {
    text.parse().map_err(|invalid| Failure::usage(format!("--token: {text}: {invalid}")))
}

/// The lease id of a grant: what was typed, else `$LEASEHOLD_LEASE_ID`. `run` sets that one together with the resource and
/// the token it belongs to; where these name another grant, so does the lease id, and it is left alone.
pub(crate) fn lease_id(
    typed: Option<&str>,
    resource: &Resource,
    token: Token,
    variable: Lookup<'_>,
) -> Result<Option<LeaseId>, Failure> {
    let refuse = |name: &str, invalid| Failure::usage(format!("{name}: {invalid}"));
    if let Some(typed) = typed {
        return typed.parse().map(Some).map_err(|invalid: leasehold::Invalid| refuse("--lease-id", invalid));
    }
    let differs = |name, own: &str| variable(name).is_some_and(|value| value != *own);
    if differs("LEASEHOLD_RESOURCE", resource.as_str()) || differs("LEASEHOLD_TOKEN", &token.to_string()) {
        return Ok(None);
    }
    let Some(given) = text("LEASEHOLD_LEASE_ID", variable)? else { return Ok(None) };
    given.parse().map(Some).map_err(|invalid: leasehold::Invalid| refuse("LEASEHOLD_LEASE_ID", invalid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    }

    fn check(global: &Global, pairs: &'static [(&str, &str)]) -> Result<Settings, Failure> {
        Settings::check(global, Output::new(false, false, false), &environment(pairs))
    }

    #[test]
    fn flags_win_over_the_environment_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leasehold.toml");
        std::fs::write(&file, "url = \"sqlite:/file\"\nnamespace = \"file\"\nholder = \"file\"").unwrap();
        let mut global = Global { config: Some(file), ..Global::default() };
        let of_file = check(&global, &[]).unwrap();
        assert_eq!((of_file.url.as_str(), of_file.namespace.as_str()), ("sqlite:/file", "file"));
        assert_eq!(of_file.holder.unwrap().as_str(), "file");
        let pairs = &[("LEASEHOLD_URL", "sqlite:/env"), ("LEASEHOLD_NAMESPACE", "env")];
        let of_env = check(&global, pairs).unwrap();
        assert_eq!((of_env.url.as_str(), of_env.namespace.as_str()), ("sqlite:/env", "env"));
        global.url = Some("sqlite:/flag".into());
        global.namespace = Some("flag".into());
        global.holder = Some("flag".into());
        let of_flag = check(&global, pairs).unwrap();
        assert_eq!((of_flag.url.as_str(), of_flag.namespace.as_str()), ("sqlite:/flag", "flag"));
        assert_eq!(of_flag.holder.unwrap().as_str(), "flag");
        assert!(!of_flag.is_default_place && check(&Global::default(), &[]).unwrap().is_default_place);
    }

    #[test]
    fn a_url_in_a_file_wins_over_one_in_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        std::fs::write(&path, "sqlite:/secret\n").unwrap();
        let variable = |name: &str| match name {
            "LEASEHOLD_URL_FILE" => Some(path.clone().into_os_string()),
            "LEASEHOLD_URL" => Some("sqlite:/env".into()),
            _ => None,
        };
        let settings =
            Settings::check(&Global::default(), Output::new(false, false, false), &variable).unwrap();
        assert_eq!(settings.url, "sqlite:/secret");
    }

    #[test]
    fn a_url_file_without_end_is_refused() {
        let variable = |name: &str| (name == "LEASEHOLD_URL_FILE").then(|| "/dev/zero".into());
        let failure =
            Settings::check(&Global::default(), Output::new(false, false, false), &variable).unwrap_err();
        assert!(failure.what().contains("not a regular file"), "{}", failure.what());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("long"), "x".repeat(70_000)).unwrap();
        assert!(read_short(&folder.path().join("long")).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn the_lease_id_in_the_environment_belongs_to_the_grant_beside_it() {
        const ID: &str = "000102030405060708090a0b0c0d0e0f";
        let (resource, token) = (Resource::new("r").unwrap(), Token::new(7).unwrap());
        let found = |typed, pairs| lease_id(typed, &resource, token, &environment(pairs));
        assert_eq!(found(None, &[]).unwrap(), None);
        assert_eq!(found(Some(ID), &[]).unwrap().unwrap().to_string(), ID);
        assert!(found(None, &[("LEASEHOLD_LEASE_ID", ID)]).unwrap().is_some());
        let same = &[("LEASEHOLD_LEASE_ID", ID), ("LEASEHOLD_RESOURCE", "r"), ("LEASEHOLD_TOKEN", "7")];
        assert!(found(None, same).unwrap().is_some());
        let other = &[("LEASEHOLD_LEASE_ID", ID), ("LEASEHOLD_RESOURCE", "r2")];
        assert_eq!(found(None, other).unwrap(), None);
        let older = &[("LEASEHOLD_LEASE_ID", ID), ("LEASEHOLD_RESOURCE", "r"), ("LEASEHOLD_TOKEN", "6")];
        assert_eq!(found(None, older).unwrap(), None);
        assert!(found(Some("xyz"), &[]).is_err());
    }
}
