//! The form in which events leave: `CloudEvents` 1.0 as JSON, which consumers know from elsewhere.

use leasehold_core::Namespace;
use serde_json::{Value, json};

use crate::effects::Event;

/// An event as JSON. `id` within `source` is the same at every delivery: by these a consumer knows it again.
///
/// `leaseholdtoken` is a text, because integers in `CloudEvents` have 32 bits.
pub fn envelope(source: &str, event: &Event) -> Value {
    let mut value = json!({
        "specversion": "1.0",
        "id": event.id.to_string(),
        "source": source,
        "type": event.topic,
        "subject": event.resource.as_str(),
        "time": humantime::format_rfc3339_micros(std::time::UNIX_EPOCH + std::time::Duration::from_micros(event.created_us))
            .to_string(),
        "datacontenttype": "application/json",
        "leaseholdtoken": event.token.to_string(),
        "leaseholdscope": event.key.scope(),
        "leaseholdkey": event.key.as_str(),
        "data": event.payload,
    });
    if event.namespace != Namespace::default()
        && let Value::Object(fields) = &mut value
    {
        fields.insert("leaseholdnamespace".to_owned(), json!(event.namespace.as_str()));
    }
    value
}
