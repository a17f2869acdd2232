//! Receives the library's events. It keeps nothing and knows no spans: the library has none.

use std::fmt;

use leasehold::clock;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

use super::{
    Format, Sink,
    line::{Line, Value},
};

/// Turns events into lines.
#[derive(Debug)]
pub(super) struct Lines {
    format: Format,
    sink: Sink,
    trace_id: Option<String>,
}

impl Lines {
    pub(super) fn new(format: Format, sink: Sink, trace_id: Option<String>) -> Self {
        Self { format, sink, trace_id }
    }

    /// People do not read every renewal; a timeline wants them.
    fn most(&self) -> Level {
        match self.format {
            Format::Json => Level::DEBUG,
            Format::Text => Level::INFO,
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Other crates may say what contains credentials.
        let target = metadata.target();
        (target == "leasehold" || target.starts_with("leasehold::")) && *metadata.level() <= self.most()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.most()))
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::new(clock::unix_us(), level(*event.metadata().level()));
        event.record(&mut Fields(&mut line));
        if let Some(trace_id) = &self.trace_id {
            line.push("trace_id", Value::Text(trace_id.clone()));
        }
        let text = match self.format {
            Format::Json => line.json(),
            Format::Text => line.text(),
        };
        self.sink.write(&text);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        _ => "debug",
    }
}

struct Fields<'a>(&'a mut Line);

impl Visit for Fields<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push(field.name(), Value::Whole(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.record_u64(field, value),
            Err(_) => self.0.push(field.name(), Value::Text(value.to_string())),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.push(field.name(), Value::Truth(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push(field.name(), Value::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push(field.name(), Value::Text(format!("{value:?}")));
    }
}
