//! The fence in Redis: a script that wraps one write, and one that only asks.
//!
//! Redis runs a script as one step, so that the check and the command inside it are one: [`RedisFence::write`]. A check by itself
//! ([`RedisFence::check`]) is only as good as what is between it and the write.
//!
//! A fence in Redis lasts as long as Redis remembers. One that was restarted without its data, or whose eviction took the key, knows
//! nothing, and refuses every write until somebody seals: do not use [`RedisFence::enter`] on a server that may forget.
//!
//! | | key |
//! | --- | --- |
//! | the fence of `orders/42` | `lhfence:{default:orders%2F42}`, a hash that never expires |
//!
//! On a Cluster the keys of a write must be in the fence's slot: give them its tag, as in `{default:orders%2F42}:state`
//! ([`RedisFence::tag`]); or give fences of many resources one tag, that of the data ([`RedisFence::within`]).

pub(crate) mod script;
mod store;

use leasehold_core::{
    Error, Invalid, Kind, Namespace, Resource,
    fence::{Ask, Pass, Verdict},
};
pub use redis;
use redis::{Arg, Cmd, Value, aio::ConnectionLike};

pub use script::{CHECK, WRITE};
pub use store::RedisStore;

use super::{NotAdmitted, Policy, answer::refuse};
use crate::{clock, coordinator::redis::of_request};

/// A fence beside the data that it protects, on a connection of the caller's.
///
/// ```no_run
/// # async fn example(mut connection: redis::aio::MultiplexedConnection, lease: leasehold::Lease) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::fence::redis::RedisFence;
///
/// let fence = RedisFence::default();
/// fence.seal(&mut connection, &lease.pass()).await?; // before anything is read
///
/// let mut command = redis::cmd("SET");
/// command.arg("orders/42:state").arg("paid");
/// fence.write(&mut connection, &lease.pass(), &command, &["orders/42:state"]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisFence {
    policy: Policy,
    place: String,
    within: Option<String>,
}

impl Default for RedisFence {
    fn default() -> Self {
        Self::new(Policy::default())
    }
}

impl RedisFence {
    /// A fence with a policy of its own.
    pub fn new(policy: Policy) -> Self {
        Self { policy, place: "redis".to_owned(), within: None }
    }

    /// With all fences under this one hash tag, without braces: for a Cluster, where the data of several resources are in one slot. It is
    /// another fence than the one without: who protects a resource by the one shuts nobody out at the other.
    ///
    /// # Errors
    /// [`Invalid`] for a tag that is not 1–255 bytes without braces and NUL.
    pub fn within(mut self, tag: &str) -> Result<Self, Invalid> {
        self.within = Some(checked(tag)?.to_owned());
        Ok(self)
    }

    /// The hash tag of a resource, without braces.
    pub fn tag(namespace: &Namespace, resource: &Resource) -> String {
        format!("{namespace}:{}", resource.encode())
    }

    /// The key of a resource's fence.
    pub fn key(namespace: &Namespace, resource: &Resource) -> String {
        format!("lhfence:{{{}}}", Self::tag(namespace, resource))
    }

    /// The key of a resource's fence, under the tag of this one where it has one.
    pub fn key_of(&self, namespace: &Namespace, resource: &Resource) -> String {
        match &self.within {
            None => Self::key(namespace, resource),
            Some(tag) => format!("lhfence:{{{tag}}}{}", Self::tag(namespace, resource)),
        }
    }

    /// Shuts every older grant out: before the new holder reads anything.
    ///
    /// # Errors
    /// [`NotAdmitted`]: do not read, do not write.
    pub async fn seal<C: ConnectionLike>(&self, connection: &mut C, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(connection, pass, Ask::Seal).await
    }

    /// Does a write under this pass count? Answered apart from the write.
    ///
    /// # Errors
    /// [`NotAdmitted`]: the write must have no effect.
    pub async fn check<C: ConnectionLike>(&self, connection: &mut C, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(connection, pass, Ask::Write).await
    }

    /// As [`RedisFence::check`], and seals a resource that the fence has never seen.
    ///
    /// # Errors
    /// [`NotAdmitted`]: the write must have no effect.
    pub async fn enter<C: ConnectionLike>(&self, connection: &mut C, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(connection, pass, Ask::Enter).await
    }

    /// Runs one command in one step with the fence's answer, and gives what it answers. `keys` are the keys that it touches.
    ///
    /// # Errors
    /// [`NotAdmitted`]: it was not run, or has failed; [`Kind::Unknown`] when no answer came: it may have been run.
    pub async fn write<C: ConnectionLike>(
        &self,
        connection: &mut C,
        pass: &Pass,
        command: &Cmd,
        keys: &[&str],
    ) -> Result<Value, NotAdmitted> {
        self.judge(pass)?;
        let mut call = script::write().prepare_invoke();
        call.key(self.key_of(&pass.namespace, &pass.resource)).key(keys);
        for argument in script::arguments(pass, Ask::Write) {
            call.arg(argument);
        }
        for word in command.args_iter() {
            let Arg::Simple(word) = word else {
                return Err(Error::new(Kind::Invalid, "a fenced command has no cursor").into());
            };
            call.arg(word);
        }
        let answer = call.invoke_async::<Value>(connection).await;
        let (verdict, value) =
            script::read(answer.map_err(|error| of_request(&error).error.on(&pass.resource))?)?;
        self.conclude(pass, verdict).map(|()| value)
    }

    async fn ask<C: ConnectionLike>(
        &self,
        connection: &mut C,
        pass: &Pass,
        ask: Ask,
    ) -> Result<(), NotAdmitted> {
        self.judge(pass)?;
        let mut call = script::check().prepare_invoke();
        call.key(self.key_of(&pass.namespace, &pass.resource));
        for argument in script::arguments(pass, ask) {
            call.arg(argument);
        }
        let answer = call.invoke_async::<Value>(connection).await;
        let (verdict, _) =
            script::read(answer.map_err(|error| of_request(&error).error.on(&pass.resource))?)?;
        self.conclude(pass, verdict)
    }

    pub(crate) fn judge(&self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.policy.judge(pass, clock::unix_us()).map_err(|refusal| refuse(&self.place, pass, refusal))
    }

    pub(crate) fn conclude(&self, pass: &Pass, verdict: Verdict) -> Result<(), NotAdmitted> {
        match verdict {
            Verdict::Admitted => Ok(()),
            Verdict::Refused(refusal) => Err(refuse(&self.place, pass, refusal)),
        }
    }
}

/// A hash tag that is one wherever it is put.
pub(crate) fn checked(tag: &str) -> Result<&str, Invalid> {
    if tag.is_empty() || tag.len() > 255 || tag.contains(['{', '}', '\0']) {
        return Err(Invalid::new("hash tag", "must be 1 to 255 bytes of UTF-8 without braces and NUL"));
    }
    Ok(tag)
}
