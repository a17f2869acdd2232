//! The answer to a request that was not let in: a problem as RFC 9457 has it.
//!
//! | status | `type` ends in |
//! | --- | --- |
//! | 400 | `malformed`, `wrong_resource`, `token_too_high` |
//! | 403 | `unsigned`, `unknown_key`, `forged`, `ticket_expired`, `foreign_ticket`, `ticket_too_long` |
//! | 404 | `no_such_resource` |
//! | 409 | `collision` |
//! | 412 | `stale` |
//! | 428 | `missing_token` |
//! | 503 | `unavailable`: the fence could not be asked, and nothing was done |

use http::{HeaderValue, Response, StatusCode, header};
use leasehold_core::{
    Invalid,
    fence::{OpSeq, Refusal},
};
use serde_json::{Map, Value, json};

use crate::fence::{NotAdmitted, Refused};

fn status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Stale { .. } => StatusCode::PRECONDITION_FAILED,
        Refusal::Collision { .. } => StatusCode::CONFLICT,
        Refusal::NoSuchResource => StatusCode::NOT_FOUND,
        Refusal::MissingToken => StatusCode::PRECONDITION_REQUIRED,
        Refusal::Ticket(_) => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The problem of a request that was not let in.
pub(super) fn of<B: From<String>>(no: &NotAdmitted) -> Response<B> {
    match no {
        NotAdmitted::Refused(refused) => {
            response(status(&refused.refusal), refused.refusal.word(), &refused.to_string(), fields(refused))
        }
        // What the fence's place says of itself is for its operators, in the log, and not for its callers.
        NotAdmitted::Failed(_) => response(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "the fence could not be asked; nothing was done, and the request may be sent again",
            Map::new(),
        ),
    }
}

/// The problem of a header that is none.
pub(super) fn of_invalid<B: From<String>>(invalid: &Invalid) -> Response<B> {
    response(StatusCode::BAD_REQUEST, "malformed", &invalid.to_string(), Map::new())
}

fn fields(refused: &Refused) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    if let Some(resource) = &refused.resource {
        put("resource", json!(resource.as_str()));
    }
    if let Some(pass) = &refused.pass {
        put("fencing_token", json!(pass.token.get()));
        put("lease_id", json!(pass.lease_id.to_string()));
    }
    if let Some(stored) = refused.refusal.stored() {
        put("stored_token", json!(stored.token.get()));
        put("stored_op_seq", json!(stored.op_seq.map(OpSeq::get)));
        put("stored_holder", json!(stored.holder.as_str()));
    }
    fields
}

fn response<B: From<String>>(
    status: StatusCode,
    word: &str,
    detail: &str,
    mut fields: Map<String, Value>,
) -> Response<B> {
    let title = word.replace('_', " ");
    fields.insert("type".to_owned(), json!(format!("urn:leasehold:fence:{word}")));
    fields.insert("title".to_owned(), json!(title));
    fields.insert("status".to_owned(), json!(status.as_u16()));
    fields.insert("detail".to_owned(), json!(detail));
    let mut response = Response::new(B::from(Value::Object(fields).to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // No cache may keep it: the next token is another matter.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
