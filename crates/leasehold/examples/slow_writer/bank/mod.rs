//! Where the account is kept, and the fence that belongs to that place.

mod file;
mod http;
mod postgres;
mod redis;
mod sqlite;

use std::{any::Any, error::Error, path::Path};

use leasehold::fence::{NotAdmitted, Pass};

use crate::Setting;

/// What became of an account.
pub(crate) struct Account {
    pub(crate) balance: i64,
    /// Who wrote what, in order.
    pub(crate) history: Vec<String>,
}

impl Account {
    /// From its history alone: the last line counts.
    pub(crate) fn of(history: Vec<String>) -> Result<Self, Box<dyn Error>> {
        let last = history.last().and_then(|line| line.split(['(', ')']).nth(1)).ok_or("no line")?;
        Ok(Self { balance: last.parse()?, history })
    }
}

/// An account with its fence.
pub(crate) trait Bank {
    fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted>;
    fn account(&mut self) -> Result<Account, Box<dyn Error>>;
    fn write(&mut self, pass: &Pass, fenced: bool, balance: i64) -> Result<(), Box<dyn Error>>;

    fn balance(&mut self) -> Result<i64, Box<dyn Error>> {
        Ok(self.account()?.balance)
    }
}

/// Which kind of place, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    kind: String,
    at: String,
}

impl Place {
    /// The place that was asked for, or the one that goes with the coordinator.
    pub(crate) fn choose(setting: &Setting, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let url = setting.data.as_ref().or(setting.url.as_ref());
        let scheme = url.and_then(|url| url.split_once(':')).map_or("sqlite", |(scheme, _)| scheme);
        let kind = setting.fence.as_deref().unwrap_or(match scheme {
            "postgres" | "postgresql" => "postgres",
            "redis" | "rediss" => "redis",
            _ => "sqlite",
        });
        let url = || url.cloned().ok_or("this fence needs --data URL");
        let at = match kind {
            "sqlite" => folder.join("account.db").display().to_string(),
            "file" => folder.join("account.txt").display().to_string(),
            "postgres" | "psql" | "redis" => url()?,
            "http" => format!("127.0.0.1:{}", leasehold_testkit::server::free_port(0)?),
            other => return Err(format!("there is no fence called {other}").into()),
        };
        Ok(Self { kind: kind.to_owned(), at })
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.kind, self.at)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let (kind, at) = text.split_once(' ').ok_or("no place")?;
        Ok(Self { kind: kind.to_owned(), at: at.to_owned() })
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Bank>, Box<dyn Error>> {
        Ok(match self.kind.as_str() {
            "sqlite" => Box::new(sqlite::Database::open(&self.at)?),
            "postgres" => Box::new(postgres::Database::open(&self.at)?),
            "psql" => Box::new(postgres::Psql(self.at.clone())),
            "redis" => Box::new(redis::Server::open(&self.at)?),
            "http" => Box::new(http::Client(self.at.clone())),
            _ => Box::new(file::Book::open(&self.at)?),
        })
    }

    /// Opens the account with a balance of 100.
    pub(crate) fn set_up(&self) -> Result<(), Box<dyn Error>> {
        match self.kind.as_str() {
            "sqlite" => sqlite::set_up(&self.at),
            "postgres" | "psql" => postgres::set_up(&self.at),
            "redis" => redis::set_up(&self.at),
            "http" => Ok(()),
            _ => file::set_up(&self.at),
        }
    }

    pub(crate) fn account(&self) -> Result<Account, Box<dyn Error>> {
        self.open()?.account()
    }
}

/// Whatever must run for the place to be reached, for as long as it lives.
pub(crate) fn serve(place: &Place, fenced: bool) -> Result<Box<dyn Any>, Box<dyn Error>> {
    if place.kind == "http" { Ok(Box::new(http::serve(&place.at, fenced)?)) } else { Ok(Box::new(())) }
}
