//! The workers of a run: processes of this same program, some of them behind a network that can be broken.

use std::{
    fs, io,
    net::ToSocketAddrs as _,
    path::{Path, PathBuf},
};

use leasehold::{Url, address::Address};
use leasehold_testkit::{
    process::{Child, Spawn},
    proxy::Proxy,
};

use super::plan::{PLAN, Plan, REST, journal, resting};

/// One worker at a time works in each slot.
pub(super) struct Slot {
    pub(super) child: Child,
    /// What cuts it off; empty when it speaks to the coordinator directly.
    pub(super) links: Vec<Proxy>,
    url: String,
    starts: u32,
}

/// All workers.
pub(super) struct Crew {
    pub(super) slots: Vec<Slot>,
    /// Workers that have ended, whose histories are still to be read.
    pub(super) retired: Vec<String>,
    template: Plan,
    program: PathBuf,
}

impl Crew {
    /// Starts `workers` of them; every fourth has a network of its own, where the coordinator is behind one.
    pub(super) fn start(template: Plan, workers: usize) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut crew = Self { slots: Vec::new(), retired: Vec::new(), template, program };
        for index in 0..workers {
            // The last ones: the first ones are left alone.
            let is_linked = index + workers.div_ceil(4) >= workers;
            let (links, url) = match is_linked.then(|| linked(&crew.template.url)).flatten() {
                Some((hosts, open)) => rewritten(&crew.template.url, &hosts, open)?,
                None => (Vec::new(), crew.template.url.clone()),
            };
            let child = crew.spawn(index, 0, &url)?;
            crew.slots.push(Slot { child, links, url, starts: 0 });
        }
        Ok(crew)
    }

    fn spawn(&self, index: usize, starts: u32, url: &str) -> io::Result<Child> {
        let name = format!("w{index}-{starts}");
        let seed = self.template.seed ^ (index as u64) << 40 ^ u64::from(starts) << 8;
        let plan = Plan { name: name.clone(), url: url.to_owned(), seed, ..self.template.clone() };
        let plan = serde_json::to_string(&plan).map_err(io::Error::other)?;
        Spawn::new(&self.program)
            .args(["verify", "worker"])
            .env(PLAN, plan)
            // A log of each change for hours would fill the disk.
            .without_env("LEASEHOLD_LOG")
            .without_env("LEASEHOLD_LOG_FILE")
            .start(&name, &self.template.folder)
    }

    /// Puts a new worker in the place of one that has ended.
    pub(super) fn replace(&mut self, index: usize) -> io::Result<()> {
        let (starts, url) = (self.slots[index].starts + 1, self.slots[index].url.clone());
        let child = self.spawn(index, starts, &url)?;
        let slot = &mut self.slots[index];
        let before = std::mem::replace(&mut slot.child, child);
        slot.starts = starts;
        self.retired.push(before.name().to_owned());
        Ok(())
    }

    /// The first worker that has ended by itself, and what it said.
    pub(super) fn ended(&self) -> io::Result<Option<(usize, String)>> {
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.child.ended()?.is_some() {
                let said = slot.child.stderr().unwrap_or_default();
                let said = said.lines().last().unwrap_or_default();
                return Ok(Some((index, format!("a worker ended ({}): {said}", slot.child.outcome()))));
            }
        }
        Ok(None)
    }

    /// Those whose histories may have grown.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.retired.iter().map(String::as_str).chain(self.slots.iter().map(|slot| slot.child.name()))
    }

    /// Asks all of them to come to rest.
    pub(super) fn call_to_rest(&self, round: u64) -> io::Result<()> {
        // Whole or not there, whoever looks.
        let draft = self.template.folder.join("rest.draft");
        fs::write(&draft, round.to_string())?;
        fs::rename(draft, self.template.folder.join(REST))
    }

    /// Lets them go on.
    pub(super) fn call_to_work(&self) -> io::Result<()> {
        fs::remove_file(self.template.folder.join(REST))
    }

    /// Does everybody rest?
    pub(super) fn rests(&self, round: u64) -> bool {
        let round = round.to_string();
        let rests = |slot: &Slot| {
            fs::read_to_string(resting(&self.template.folder, slot.child.name()))
                .is_ok_and(|said| said == round)
        };
        self.slots.iter().all(rests)
    }

    /// Empties what has been read of those that rest, and removes what the dead have left.
    pub(super) fn forget_what_was_read(&mut self) -> io::Result<()> {
        let folder = &self.template.folder;
        for slot in &self.slots {
            // Opened for appending at the other side: it goes on at the new end.
            truncate(&journal(folder, slot.child.name()))?;
        }
        for name in self.retired.drain(..) {
            let files = [journal(folder, &name), resting(folder, &name)];
            let said = ["stdout", "stderr"].map(|stream| folder.join(format!("{name}.{stream}")));
            for path in files.into_iter().chain(said) {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn truncate(path: &Path) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).open(path) {
        Ok(file) => file.set_len(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The hosts of a coordinator in front of which a proxy can stand, with the engine's port. `None` where a name must be checked
/// (TLS), where the servers name one another (Sentinel, Cluster), or where there is no TCP.
fn linked(url: &str) -> Option<(Address, u16)> {
    let Ok(Url::Network(address)) = Url::parse(url) else { return None };
    let mut settings = address.settings();
    let is_plain_postgres = settings.text("listen_url").is_none()
        && (settings.text("sslmode") == Some("disable")
            || address.hosts.iter().all(|host| is_loopback(&host.name)));
    let is_single = settings.text("sentinel").is_none() && settings.text("cluster").is_none();
    let port = match address.scheme.as_str() {
        "redis" | "redlock" if is_single => 6_379,
        "postgres" | "postgresql" if is_plain_postgres => 5_432,
        "etcd" => 2_379,
        _ => return None,
    };
    let by_tcp = !address.hosts.is_empty() && address.hosts.iter().all(|host| !host.name.starts_with('/'));
    by_tcp.then_some((*address, port))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A proxy for each host, and the same URL through them.
fn rewritten(url: &str, address: &Address, port: u16) -> io::Result<(Vec<Proxy>, String)> {
    let mut links = Vec::new();
    for host in &address.hosts {
        let found = (host.name.as_str(), host.port.unwrap_or(port)).to_socket_addrs()?.next();
        links.push(Proxy::start(found.ok_or(io::ErrorKind::NotFound)?)?);
    }
    let hosts: Vec<String> = links.iter().map(|link| link.address().to_string()).collect();
    Ok((links, through(url, &hosts.join(","))))
}

/// The URL with other hosts: everything else, the login included, stays as it was written.
fn through(url: &str, hosts: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let login = authority.rsplit_once('@').map_or(String::new(), |(login, _)| format!("{login}@"));
    format!("{scheme}://{login}{hosts}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_through_the_proxy_with_everything_else_as_it_was() {
        for (url, expected) in [
            ("redis://h", "redis://p:1"),
            ("redis://a:b%40@h:5/3?max_ttl=1m", "redis://a:b%40@p:1/3?max_ttl=1m"),
            ("etcd://a,b?x=1", "etcd://p:1?x=1"),
        ] {
            assert_eq!(through(url, "p:1"), expected);
        }
    }

    #[test]
    fn a_proxy_stands_only_where_nothing_is_weakened() {
        for url in [
            "redis://h",
            "redlock://a,b,c",
            "etcd://a",
            "postgres://u@127.0.0.1/x",
            "postgres://h/x?sslmode=disable",
        ] {
            assert!(linked(url).is_some(), "{url}");
        }
        for url in [
            "sqlite:/x",
            "rediss://h",
            "etcds://h",
            // Through the loopback it would no longer be covered by TLS.
            "postgres://db.example/x",
            "postgres:///x",
            "redis://a,b?sentinel=s",
            "redis://a?cluster=true",
            "postgres://127.0.0.1/x?listen_url=postgres://127.0.0.1",
        ] {
            assert!(linked(url).is_none(), "{url}");
        }
    }
}
