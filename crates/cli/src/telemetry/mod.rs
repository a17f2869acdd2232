//! What `run` tells monitoring: counters and durations, on a small endpoint or in a file for the node exporter.
//!
//! ```text
//!   library ── metrics facade ──▶ registry ── snapshot ──▶ text ──▶ listen (scraped)
//!                                                            └────▶ textfile (collected)
//! ```
//!
//! The registry is ours: a dozen families with fixed buckets need no library, and a file that several runs add to needs
//! figures that can be read back and added up.

mod listen;
mod registry;
mod snapshot;
mod text;
mod textfile;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use crate::failure::Failure;
use registry::Registry;

/// What was asked for, checked.
#[derive(Clone, Default, Debug)]
pub(crate) struct Plan {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) textfile: Option<PathBuf>,
}

/// Telemetry under way. Dropping it writes the file for the last time.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    /// Stops and writes when it is dropped.
    _file: Option<textfile::Writer>,
}

impl Plan {
    /// Reads an address. A port alone is on this machine only.
    pub(crate) fn address(text: &str) -> Result<SocketAddr, Failure> {
        let port = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        text.parse().map_err(|_| {
            Failure::usage(format!("--metrics-listen: {text} is no address; write 9464 or 127.0.0.1:9464"))
        })
    }

    /// Starts what was asked for, on threads of its own: not before the guard is forked.
    pub(crate) fn start(&self) -> Result<Telemetry, Failure> {
        if self.listen.is_none() && self.textfile.is_none() {
            return Ok(Telemetry::default());
        }
        let registry = Arc::new(Registry::default());
        registry.install()?;
        if let Some(address) = self.listen {
            listen::start(address, registry.clone())
                .map_err(|error| Failure::usage(format!("--metrics-listen: {address}: {error}")))?;
        }
        let file = self.textfile.as_ref().map(|path| {
            textfile::Writer::start(path, registry.clone())
                .map_err(|error| Failure::usage(format!("--metrics-textfile: {}: {error}", path.display())))
        });
        Ok(Telemetry { _file: file.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_machine_only() {
        let address = |text| Plan::address(text).unwrap().to_string();
        assert_eq!(address("9464"), "127.0.0.1:9464");
        assert_eq!(address(":9464"), "127.0.0.1:9464");
        assert_eq!(address("0.0.0.0:1"), "0.0.0.0:1");
        assert_eq!(address("[::1]:1"), "[::1]:1");
        assert!(Plan::address("localhost").is_err() && Plan::address("99999").is_err());
    }
}
