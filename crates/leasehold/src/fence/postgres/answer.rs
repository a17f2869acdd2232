//! The answer of the SQL functions, whichever driver has brought it.

use leasehold_core::{
    Error, Kind, Label, LeaseId, Token,
    fence::{Ask, Mark, OpSeq, Pass, Refusal, Verdict},
};

use super::identifier;

/// A row of `fence_ask`.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) word: String,
    pub(super) token: Option<i64>,
    pub(super) lease_id: Option<String>,
    pub(super) op_seq: Option<i64>,
    pub(super) holder: Option<String>,
    pub(super) max_token: Option<i64>,
}

impl Answer {
    pub(super) fn verdict(self) -> Result<Verdict, Error> {
        Ok(Verdict::Refused(match self.word.as_str() {
            "admitted" => return Ok(Verdict::Admitted),
            "stale" => Refusal::Stale { stored: self.mark()? },
            "collision" => Refusal::Collision { stored: self.mark()? },
            "no_such_resource" => Refusal::NoSuchResource,
            "not_held" => Refusal::NotHeld,
            "missing_token" => Refusal::MissingToken,
            "token_too_high" => Refusal::TokenTooHigh { limit: self.max_token.map_or(0, i64::unsigned_abs) },
            other => return Err(corrupt(format!("the fence answers {other:?}"))),
        }))
    }

    pub(super) fn mark(&self) -> Result<Mark, Error> {
        let token = self.token.map_or(0, i64::unsigned_abs);
        let op_seq = self.op_seq.map(|op_seq| OpSeq::new(op_seq.unsigned_abs())).transpose();
        // PostgreSQL writes a uuid with hyphens.
        let lease_id = self.lease_id.as_ref().map(|id| id.replace('-', "").parse::<LeaseId>()).transpose();
        Ok(Mark {
            token: Token::new(token).map_err(|_| corrupt("the fence's token is none"))?,
            lease_id: lease_id.map_err(|_| corrupt("the fence's lease id is none"))?,
            op_seq: op_seq.map_err(|_| corrupt("the fence's op_seq is none"))?,
            holder: Label::from_lossy(self.holder.as_deref().unwrap_or_default()),
        })
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, what).advise("somebody has changed the table fence by hand; put the row right")
}

/// The statements, for a schema.
#[derive(Clone, Debug)]
pub(super) struct Statements {
    pub(super) ask: String,
    pub(super) strict: String,
    pub(super) refuse: String,
    pub(super) show: String,
    pub(super) raise: String,
    pub(super) refused: String,
}

const COLUMNS: &str = "word, stored_token, stored_lease_id::text, stored_op_seq, stored_holder, max_token";

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let schema = identifier(schema);
        Self {
            ask: format!(
                "SELECT {COLUMNS} FROM {schema}.fence_ask($1::text, $2::text, $3::text, $4::int8, $5::text::uuid, $6::int8, $7::text, \
                 NULL)"
            ),
            strict: format!(
                "SELECT {COLUMNS} FROM {schema}.fence_strict_ask($1::text, $2::text, $3::int8, $4::text::uuid, $5::text)"
            ),
            show: format!(
                "SELECT '', token, lease_id::text, op_seq, holder, NULL::int8 FROM {schema}.fence_show($1::text, $2::text)"
            ),
            raise: format!("SELECT {schema}.fence_raise($1::text, $2::int8, $3::text, $4::text)"),
            refused: format!("SELECT {schema}.fence_refused()"),
            refuse: format!("SELECT {schema}.fence_refuse('refused', '', NULL, NULL, NULL)"),
        }
    }
}

/// The parameters of a pass.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) ask: &'static str,
    pub(super) namespace: String,
    pub(super) resource: String,
    pub(super) token: i64,
    pub(super) lease_id: String,
    pub(super) op_seq: Option<i64>,
    pub(super) holder: String,
}

impl Shown {
    pub(super) fn of(pass: &Pass, ask: Ask) -> Self {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            ask: match ask {
                Ask::Seal => "seal",
                Ask::Write => "write",
                Ask::Enter => "enter",
            },
            namespace: pass.namespace.as_str().to_owned(),
            resource: pass.resource.as_str().to_owned(),
            token: signed(pass.token.get()),
            lease_id: pass.lease_id.to_string(),
            op_seq: pass.op_seq.map(|op_seq| signed(op_seq.get())),
            holder: pass.holder.as_str().to_owned(),
        }
    }
}
