//! Drives the engine's rules with a list of operations in virtual time, and writes down what the actors saw.
//!
//! The operations come from whoever calls (a property test draws and shrinks them); running the same list again gives the
//! same history. Actors behave as holders do: a window is counted from before the request left, with the usual margin; a
//! window that is over is given up; an answer that comes too late is taken back. Now and then they misbehave the way
//! networks make them: they ask twice, and messages of grants that are long over arrive late.
//!
//! What the history cannot show, the driver says itself, in [`Run::complaints`]: a renewal refused inside a window that
//! nobody revoked, a release in time that ended nothing, a resource that nobody can have any more.

mod actor;
mod world;

pub use world::{Run, run};

/// Actors, numbered from 0.
pub const ACTORS: u8 = 4;
/// Resources, numbered from 0.
pub const RESOURCES: u8 = 2;

/// One step of a run. Numbers out of range are taken modulo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// An actor that has nothing asks for a resource; one that asked and has no grant yet asks again.
    Claim {
        /// Which actor.
        actor: u8,
        /// Which resource, when it is a new claim.
        resource: u8,
        /// Its TTL in milliseconds.
        ttl_ms: u16,
        /// Its lock-delay in milliseconds.
        lock_delay_ms: u16,
        /// Whether it waits.
        queue: bool,
        /// How long the request, and then the answer, is on its way, in milliseconds.
        flight_ms: u16,
    },
    /// The last claim of an actor is sent once more, although it was answered.
    Duplicate {
        /// Which actor.
        actor: u8,
    },
    /// An actor renews.
    Renew {
        /// Which actor.
        actor: u8,
        /// The TTL in milliseconds.
        ttl_ms: u16,
        /// As in a claim.
        flight_ms: u16,
    },
    /// A renewal of a grant that the actor no longer believes in arrives.
    LateRenewal {
        /// Which actor.
        actor: u8,
    },
    /// An actor releases, or gives up waiting.
    Release {
        /// Which actor.
        actor: u8,
        /// Whether its work succeeded.
        succeeded: bool,
    },
    /// A release of a grant that the actor no longer believes in arrives.
    LateRelease {
        /// Which actor.
        actor: u8,
    },
    /// An operator revokes whatever is held.
    Revoke {
        /// Which resource.
        resource: u8,
        /// Whether it is freed at once.
        now: bool,
    },
    /// An actor writes to the resource that it believes to hold; the resource checks tokens.
    Write {
        /// Which actor.
        actor: u8,
    },
    /// A write of a grant that the actor no longer believes in arrives.
    LateWrite {
        /// Which actor.
        actor: u8,
    },
    /// Time passes.
    Advance {
        /// How much, in milliseconds.
        ms: u16,
    },
    /// An actor stops without a word, and starts anew.
    Crash {
        /// Which actor.
        actor: u8,
    },
}
