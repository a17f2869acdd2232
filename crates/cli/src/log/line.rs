//! One event as one line.

use std::fmt::Write as _;

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::{output::json_line, people};

/// An event on its way.
#[derive(Debug)]
pub(super) struct Line {
    unix_us: u64,
    level: &'static str,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Value {
    Whole(u64),
    Truth(bool),
    Text(String),
}

impl Line {
    pub(super) fn new(unix_us: u64, level: &'static str) -> Self {
        Self { unix_us, level, message: String::new(), fields: Vec::new() }
    }

    pub(super) fn push(&mut self, name: &'static str, value: Value) {
        match value {
            Value::Text(text) if name == "message" => self.message = text,
            value => self.fields.push((name, value)),
        }
    }

    /// One object: time, level and message first.
    pub(super) fn json(&self) -> String {
        // A map of texts and numbers is always JSON.
        json_line(self).unwrap_or_default()
    }

    /// As people read it; a value with a blank in it stands in quotes.
    pub(super) fn text(&self) -> String {
        let mut text =
            format!("{} {:<5} {}", people::instant(self.unix_us), self.level.to_uppercase(), self.message);
        for (name, value) in &self.fields {
            // Writing into a String cannot fail.
            let _ = match value {
                Value::Whole(value) => write!(text, " {name}={value}"),
                Value::Truth(value) => write!(text, " {name}={value}"),
                Value::Text(value) if value.contains([' ', '"', '=']) || value.is_empty() => {
                    write!(text, " {name}={value:?}")
                }
                Value::Text(value) => write!(text, " {name}={value}"),
            };
        }
        people::visible(&text) + "\n"
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len() + 3))?;
        map.serialize_entry("timestamp", &people::exact_instant(self.unix_us))?;
        map.serialize_entry("level", self.level)?;
        map.serialize_entry("message", &self.message)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let mut line = Line::new(1_767_323_045_678_901, "warn");
        line.push("message", Value::Text("it is lost".to_owned()));
        line.push("resource", Value::Text("a b\n".to_owned()));
        line.push("fencing_token", Value::Whole(17));
        line.push("reason", Value::Text(String::new()));
        line
    }

    #[test]
    fn a_line_is_one_object_with_its_time_first() {
        let expected = r#"{"timestamp":"2026-01-02T03:04:05.678901Z","level":"warn","message":"it is lost","resource":"a b\n","fencing_token":17,"reason":""}"#;
        assert_eq!(line().json(), format!("{expected}\n"));
    }

    #[test]
    fn a_line_for_people_is_one_line_too() {
        let expected = r#"2026-01-02T03:04:05Z WARN  it is lost resource="a b\n" fencing_token=17 reason="""#;
        assert_eq!(line().text(), format!("{expected}\n"));
    }
}
