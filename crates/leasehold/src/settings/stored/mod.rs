//! Settings that the coordinator keeps for everybody who follows them: the same TOML as in a file, one text for a namespace,
//! replaced as a whole.
//!
//! They are kept by means that every engine has already: by how the grants of some resources have ended.
//!
//! ```text
//!  settings set ── acquires, releases ──▶ ~settings/ID/1, 2, …   labels: the text, in parts; written once, under a new ID
//!        └──────── acquires, revokes ───▶ ~settings              by: version, when, how long, which ID, who
//!  everybody ───── looks, once in a while ────┘                  and reads the parts when that is another
//! ```
//!
//! Each place is a cell (`cell.rs`): it changes in one step, which names a token. So whoever was overtaken changes nothing, and
//! whoever reads sees the old text or the new one.

mod follow;
mod head;
mod read;
mod write;

use leasehold_core::{Label, Resource};

use self::head::Head;

/// Where it says which settings count.
const NAME: &str = "~settings";
/// What the names of the parts begin with.
const PREFIX: &str = "~settings/";

/// The longest text, in bytes (ours: a hundred patterns; each part of a quarter of a kilobyte costs two requests when it is set and one
/// read when it has changed).
pub const MAX_BYTES: usize = 8 * 1_024;

/// Settings as the coordinator keeps them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Which change made them.
    pub change: Change,
    /// TOML, as [`Rules::parse`](super::Rules::parse) reads it. Empty once they were taken away.
    pub text: String,
}

/// A change of the settings that the coordinator keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// How many there were up to this one, as far as the coordinator remembers. For people.
    pub version: u64,
    /// Who made it.
    pub by: Label,
    /// When, µs since 1970 by the engine's clock. For people; never compared.
    pub at_us: u64,
    /// How long the text is, in bytes; zero where the settings were taken away.
    pub bytes: usize,
}

/// True for the names under which settings are kept: no resource of anybody's, and left out where people look at resources.
pub fn is_settings(resource: &Resource) -> bool {
    resource.as_str() == NAME || resource.as_str().starts_with(PREFIX)
}
