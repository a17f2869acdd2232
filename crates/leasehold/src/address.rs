//! The address of an engine behind a network: one URL grammar for all of them.
//!
//! ```text
//! scheme://[user[:password]@]host[:port][,host[:port]…][/path][?setting=value[&…]]
//! ```
//!
//! Unlike a general URL it names several hosts. Every part is percent-decoded once, here; the engines read meanings, never
//! text. The password never leaves through [`fmt::Display`] or [`fmt::Debug`].

use std::{borrow::Cow, fmt, path::PathBuf, time::Duration};

use leasehold_core::{Error, Kind, Ttl};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Most hosts in one URL (ours: twice the largest sensible quorum).
const MAX_HOSTS: usize = 15;
/// What stands as it is in a shown URL.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The same, in a path.
const SHOWN_PATH: &AsciiSet = &SHOWN.remove(b'/').remove(b'$');

/// Something that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, to hand to the engine and to nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// One host of an address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    /// Its name or address, without brackets; may be a folder of Unix sockets (starts with `/`).
    pub name: String,
    /// Its port, when one was given.
    pub port: Option<u16>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]", self.name)?;
        } else {
            utf8_percent_encode(&self.name, SHOWN).fmt(f)?;
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// A parsed address. [`fmt::Display`] shows everything but the password and the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// What stands before `://`.
    pub scheme: String,
    /// Who logs in.
    pub user: Option<String>,
    /// With which password.
    pub password: Option<Secret>,
    /// Where; at least one unless the URL has none at all (`postgres:///db`).
    pub hosts: Vec<Host>,
    /// What follows the first single `/`, decoded, without it; may be empty.
    pub path: String,
    settings: Vec<(String, String)>,
}

impl Address {
    /// Reads what follows `scheme:`.
    ///
    /// # Errors
    /// [`Kind::Invalid`], never quoting what might be a password.
    pub fn parse(scheme: &str, rest: &str) -> Result<Self, Error> {
        let rest = rest.strip_prefix("//").ok_or_else(|| {
            invalid(format!("a {scheme} URL has a host")).advise(format!("write {scheme}://host"))
        })?;
        if rest.contains('#') {
            return Err(invalid("a coordinator's URL has no fragment").advise("write # as %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // The last @ of the authority: a password typed without encoding is then refused below, not sent as a host.
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = login.map_or(Ok((None, None)), read_login)?;
        let hosts: Vec<Host> =
            hosts.split(',').filter(|host| !host.is_empty()).map(read_host).collect::<Result<_, _>>()?;
        if hosts.len() > MAX_HOSTS {
            return Err(invalid(format!("a coordinator's URL names at most {MAX_HOSTS} hosts")));
        }
        let settings = query.split('&').filter(|pair| !pair.is_empty()).map(read_setting);
        let settings: Vec<_> = settings.collect::<Result<_, _>>()?;
        for (n, (name, _)) in settings.iter().enumerate() {
            if settings[..n].iter().any(|(earlier, _)| earlier == name) {
                return Err(invalid(format!("the URL sets {:?} twice", visible(name))));
            }
        }
        let path = decode(path, "path")?;
        Ok(Self { scheme: scheme.to_owned(), user, password, hosts, path, settings })
    }

    /// The whole address as a URL that reads back as the same, but for the password. Settings name files and figures, never
    /// secrets.
    pub fn to_url(&self) -> String {
        let mut url = self.to_string();
        for (n, (name, value)) in self.settings.iter().enumerate() {
            url.push(if n == 0 { '?' } else { '&' });
            url.extend(utf8_percent_encode(name, SHOWN));
            url.push('=');
            url.extend(utf8_percent_encode(value, SHOWN_PATH));
        }
        url
    }

    /// The settings, to be taken out one by one and then to be [finished](Settings::finish).
    pub fn settings(&self) -> Settings<'_> {
        Settings { scheme: &self.scheme, left: self.settings.iter().collect(), known: Vec::new() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(f, "{}@", utf8_percent_encode(user, SHOWN))?;
        }
        for (n, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if n == 0 { "" } else { "," })?;
        }
        if self.path.is_empty() {
            return Ok(());
        }
        write!(f, "/{}", utf8_percent_encode(&self.path, SHOWN_PATH))
    }
}

/// The settings of an address that have not been read yet.
#[derive(Debug)]
pub struct Settings<'a> {
    scheme: &'a str,
    left: Vec<&'a (String, String)>,
    known: Vec<&'static str>,
}

impl<'a> Settings<'a> {
    /// The setting of this name as it stands.
    pub fn text(&mut self, name: &'static str) -> Option<&'a str> {
        self.known.push(name);
        let at = self.left.iter().position(|(given, _)| given == name)?;
        Some(self.left.remove(at).1.as_str())
    }

    /// A file's path.
    pub fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// A duration with its unit, as in `48h`.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for anything else.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let read = humantime::parse_duration(text);
        read.map(Some)
            .map_err(|reason| invalid(format!("{name} in the URL is no duration with a unit: {reason}")))
    }

    /// A TTL, as in `48h`.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for anything else, or one out of range.
    pub fn ttl(&mut self, name: &'static str) -> Result<Option<Ttl>, Error> {
        Ok(self.duration(name)?.map(Ttl::new).transpose()?)
    }

    /// A whole number between the bounds, both included.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for anything else.
    pub fn number(&mut self, name: &'static str, least: u64, most: u64) -> Result<Option<u64>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(invalid(format!("{name} in the URL must be a whole number from {least} to {most}"))),
        }
    }

    /// `true` or `false`; absent is false.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for anything else.
    pub fn flag(&mut self, name: &'static str) -> Result<bool, Error> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(format!("{name} in the URL must be true or false"))),
        }
    }

    /// Refuses what nobody has asked for: a setting that is misspelt must not be ignored.
    ///
    /// # Errors
    /// [`Kind::Invalid`] naming the first, and those that there are.
    pub fn finish(self) -> Result<(), Error> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(invalid(format!("a {} URL has no setting {:?}", self.scheme, visible(name)))
            .advise(format!("known settings: {known}")))
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

/// A text with its control characters escaped, so that it can be shown.
pub(crate) fn visible(text: &str) -> String {
    text.chars().flat_map(char::escape_debug).collect()
}

fn decode(text: &str, part: &str) -> Result<String, Error> {
    let bare = text.split('%').skip(1).any(|after| {
        let digits = after.as_bytes();
        digits.len() < 2 || !digits[..2].iter().all(u8::is_ascii_hexdigit)
    });
    let decoded = percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    match decoded {
        Ok(decoded) if !bare && !decoded.contains('\0') => Ok(decoded),
        _ => Err(invalid(format!("the {part} in the URL is not percent-encoded UTF-8"))
            .advise("write % as %25, and other special characters as % and two hexadecimal digits")),
    }
}

fn read_login(login: &str) -> Result<(Option<String>, Option<Secret>), Error> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    if login.contains('@') {
        return Err(invalid("the user and password in the URL contain a bare @").advise("write @ as %40"));
    }
    let user = Some(decode(user, "user")?).filter(|user| !user.is_empty());
    let password = password.map(|password| decode(password, "password")).transpose()?;
    Ok((user, password.filter(|password| !password.is_empty()).map(Secret)))
}

fn read_host(text: &str) -> Result<Host, Error> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or_else(bad_host)?;
            if name.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(bad_host());
            }
            match after {
                "" => (name.to_owned(), None),
                _ => (name.to_owned(), Some(after.strip_prefix(':').ok_or_else(bad_host)?)),
            }
        }
        None => match text.split_once(':') {
            Some((name, port)) => (decode(name, "host")?, Some(port)),
            None => (decode(text, "host")?, None),
        },
    };
    let legal = |c: char| c.is_alphanumeric() || "-._~:".contains(c);
    if name.is_empty() || !(name.starts_with('/') || name.chars().all(legal)) {
        return Err(bad_host());
    }
    let port = match port {
        None => None,
        Some(port) => Some(port.parse().ok().filter(|&port: &u16| port > 0).ok_or_else(bad_host)?),
    };
    Ok(Host { name, port })
}

/// Quotes nothing: what is no host may be part of a password.
fn bad_host() -> Error {
    invalid("a host in the URL is no host:port").advise(
        "write host, host:port or [IPv6]:port, several separated by commas; special characters of a password as % and \
         two hexadecimal digits",
    )
}

fn read_setting(pair: &str) -> Result<(String, String), Error> {
    let (name, value) = pair.split_once('=').ok_or_else(|| invalid("a setting in the URL has no ="))?;
    Ok((decode(name, "name of a setting")?, decode(value, "value of a setting")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, Error> {
        let (scheme, rest) = url.split_once(':').unwrap();
        Address::parse(scheme, rest)
    }

    #[test]
    fn every_part_is_read_and_decoded() {
        let address = parse("x://a%40b:p%2F%3A@h1:1,[::1]:2,h3/some%20db?ttl=48h&flag=true&n=3").unwrap();
        assert_eq!(address.user.as_deref(), Some("a@b"));
        assert_eq!(address.password.as_ref().unwrap().reveal(), "p/:");
        let hosts: Vec<String> = address.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["h1:1", "[::1]:2", "h3"]);
        assert_eq!(address.path, "some db");
        let mut settings = address.settings();
        assert_eq!(settings.ttl("ttl").unwrap(), Some(Ttl::from_millis(172_800_000).unwrap()));
        assert!(settings.flag("flag").unwrap() && !settings.flag("other").unwrap());
        assert_eq!(settings.number("n", 1, 3).unwrap(), Some(3));
        settings.finish().unwrap();
        let socket = parse("x://%2Frun%2Fpg/db").unwrap();
        assert_eq!(socket.hosts[0].name, "/run/pg");
        assert_eq!(parse("x:///db").unwrap().hosts, []);
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = parse("x://user:hunter2@host:1/db?ca=/x").unwrap();
        assert_eq!(address.to_string(), "x://user@host:1/db");
        assert!(!format!("{address:?}").contains("hunter2"));
        assert_eq!(address.to_url(), "x://user@host:1/db?ca=/x");
        assert_eq!(parse(&address.to_url()).unwrap(), Address { password: None, ..address });
        for bad in [
            "x://user:hunter2/host",
            "x://u:hunter2@:b@host",
            "x://u:hunter2@host:port",
            "x://u:hunter2%@host",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (bad, word) in [
            ("x:host", "has a host"),
            ("x://host:0", "no host:port"),
            ("x://host:70000", "no host:port"),
            ("x://[::1", "no host:port"),
            ("x://h%zz", "percent-encoded"),
            ("x://h?a", "has no ="),
            ("x://h?a=1&a=2", "twice"),
            ("x://h#f", "fragment"),
            ("x://h%00", "percent-encoded"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
        let address = parse("x://h?max_tll=1s").unwrap();
        let mut settings = address.settings();
        assert_eq!(settings.ttl("max_ttl").unwrap(), None);
        let error = settings.finish().unwrap_err().to_string();
        assert!(error.contains("max_tll") && error.contains("known settings: max_ttl"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,80}") {
            let _ = Address::parse("x", &text);
            let _ = Address::parse("x", &format!("//{text}"));
        }
    }
}
