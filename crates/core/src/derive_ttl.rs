//! How long a TTL should be, derived from measured latencies.
