//! Values on their way to the server and back.

use bytes::BytesMut;
use leasehold_core::{HolderId, LeaseId};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

type Failed = Box<dyn std::error::Error + Sync + Send>;

/// Sixteen bytes as a `uuid`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) [u8; 16]);

impl From<LeaseId> for Id {
    fn from(id: LeaseId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<HolderId> for Id {
    fn from(id: HolderId) -> Self {
        Self(*id.as_bytes())
    }
}

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Failed> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Failed> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// A parameter: its value decides its type, so that no statement has to be prepared to learn it.
#[derive(Clone, Debug)]
pub(super) enum Param {
    Text(String),
    Big(Option<i64>),
    Int(Option<i32>),
    Bool(bool),
    MaybeText(Option<String>),
    Id(Id),
    Texts(Vec<String>),
    Ids(Vec<Id>),
    Bigs(Vec<Option<i64>>),
    Ints(Vec<Option<i32>>),
    Bools(Vec<bool>),
}

impl Param {
    pub(super) fn parts(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Text(value) => (value, Type::TEXT),
            Self::MaybeText(value) => (value, Type::TEXT),
            Self::Big(value) => (value, Type::INT8),
            Self::Int(value) => (value, Type::INT4),
            Self::Bool(value) => (value, Type::BOOL),
            Self::Id(value) => (value, Type::UUID),
            Self::Texts(value) => (value, Type::TEXT_ARRAY),
            Self::Ids(value) => (value, Type::UUID_ARRAY),
            Self::Bigs(value) => (value, Type::INT8_ARRAY),
            Self::Ints(value) => (value, Type::INT4_ARRAY),
            Self::Bools(value) => (value, Type::BOOL_ARRAY),
        }
    }
}

/// One statement.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) params: Vec<Param>,
}

/// The engine's integers are signed; ours stay below 2^63 for 290,000 years.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
