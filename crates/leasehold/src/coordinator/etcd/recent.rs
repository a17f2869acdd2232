//! What a client's own releases left behind.
//!
//! Whoever takes the same resource again soon need not read it first: if nobody has touched it, everything is as the release
//! left it, and the grant's transaction says whether that is so. What is kept here is only ever the basis of a grant that
//! etcd makes under that condition; any other answer is read.

use std::{collections::HashMap, sync::Mutex};

use leasehold_core::Resource;

use super::{
    record::{Meta, State},
    view::View,
};
use crate::sync::lock;

/// Resources that are remembered (ours: as many as tasks of one program that take turns at once, many times over).
const MOST: usize = 1_024;

/// What was left, by resource.
#[derive(Debug, Default)]
pub(super) struct Recent {
    left: Mutex<HashMap<Resource, (State, i64)>>,
    meta: Mutex<Option<(Meta, i64)>>,
}

impl Recent {
    /// A release has written this state at this revision, and taken the mark away.
    pub(super) fn left(&self, resource: &Resource, state: State, written: i64) {
        let mut left = lock(&self.left);
        if left.len() >= MOST {
            left.clear();
        }
        left.insert(resource.clone(), (state, written));
    }

    /// The namespace's settings as they were seen last.
    pub(super) fn saw(&self, view: &View) {
        *lock(&self.meta) = view.meta;
    }

    /// The namespace's base as it was seen last.
    pub(super) fn base(&self) -> Option<u64> {
        lock(&self.meta).map(|(meta, _)| meta.base)
    }

    /// The resource as it should be, once: who finds it otherwise reads.
    pub(super) fn take(&self, resource: &Resource) -> Option<View> {
        let (state, written) = lock(&self.left).remove(resource)?;
        Some(View {
            revision: written.unsigned_abs(),
            assumed: true,
            meta: Some((*lock(&self.meta))?),
            quarantine: None,
            state,
            written,
            mark: None,
            line: Vec::new(),
        })
    }
}
