//! What a member counts: the calls that it has answered, the leases that it has renewed.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use super::Etcd;

/// How long a healthy member may take to tell.
const LIMIT: Duration = Duration::from_secs(10);

impl Etcd {
    /// The sum of a member's counters of this name whose labels contain all of these (`grpc_method="Txn"`). Nothing, where it has
    /// not counted any yet. For members without TLS.
    ///
    /// # Errors
    /// When the member does not tell.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, written as floats")]
    pub fn figure(&self, at: usize, name: &str, labels: &[&str]) -> io::Result<u64> {
        let mut stream = TcpStream::connect_timeout(&self.address(at), LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        if !text.starts_with("HTTP/1.0 200") && !text.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(format!("no metrics: {}", text.lines().next().unwrap_or_default())));
        }
        Ok(sum(&text, name, labels) as u64)
    }

    /// How often a member has answered calls of this method (`Txn`, `Authenticate`), whatever came of them.
    ///
    /// # Errors
    /// As [`Etcd::figure`].
    pub fn calls(&self, at: usize, method: &str) -> io::Result<u64> {
        self.figure(at, "grpc_server_handled_total", &[&format!("grpc_method=\"{method}\"")])
    }
}

fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let of_line = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (told, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        labels.iter().all(|label| told.contains(label)).then(|| value.trim().parse::<f64>().ok())?
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_the_labels_that_are_not_named() {
        let text = "# TYPE a counter\na{m=\"Txn\",code=\"OK\"} 3\na{m=\"Txn\",code=\"Aborted\"} 1e+01\na{m=\"Range\"} 7\nab 1\nb 5";
        let of = |name, labels: &[&str]| sum(text, name, labels);
        assert!((of("a", &["m=\"Txn\""]) - 13.0).abs() < 0.1);
        assert!((of("a", &[]) - 20.0).abs() < 0.1);
        assert!((of("b", &[]) - 5.0).abs() < 0.1 && of("c", &[]).abs() < 0.1);
    }
}
