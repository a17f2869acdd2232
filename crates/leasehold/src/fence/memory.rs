//! The fence of one process: for tests, and for services whose data lives in their own memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold_core::{
    Call, Error, Label, Namespace, Resource, Token,
    fence::{Ask, Mark, Pass, Verdict, judge, raised},
};

use super::{FenceStore, store::Work};
use crate::sync::lock;

#[derive(Debug, Default)]
struct Known {
    marks: HashMap<(Namespace, Resource), Mark>,
    refused: u64,
}

/// Highest tokens in memory; clones share them. They are gone when the process is.
#[derive(Clone, Debug, Default)]
pub struct MemoryFence(Arc<Mutex<Known>>);

impl MemoryFence {
    fn step(
        &self,
        pass: &Pass,
        ask: Ask,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Verdict, Error> {
        let mut known = lock(&self.0);
        let key = (pass.namespace.clone(), pass.resource.clone());
        match judge(known.marks.get(&key), pass, ask) {
            Ok(mark) => {
                work()?;
                known.marks.insert(key, mark);
                Ok(Verdict::Admitted)
            }
            Err(refusal) => {
                known.refused += 1;
                Ok(Verdict::Refused(refusal))
            }
        }
    }
}

impl FenceStore for MemoryFence {
    fn place(&self) -> &'static str {
        "memory"
    }

    fn ask(&self, pass: Pass, ask: Ask) -> Call<'_, Verdict> {
        Box::pin(async move { self.step(&pass, ask, || Ok(())) })
    }

    fn look(&self, namespace: Namespace, resource: Resource) -> Call<'_, Option<Mark>> {
        Box::pin(async move { Ok(lock(&self.0).marks.get(&(namespace, resource)).cloned()) })
    }

    fn raise(&self, namespace: Namespace, resource: Resource, token: Token, by: Label) -> Call<'_, Mark> {
        Box::pin(async move {
            let mut known = lock(&self.0);
            let key = (namespace, resource);
            let mark = raised(known.marks.get(&key), token, &by);
            known.marks.insert(key, mark.clone());
            Ok(mark)
        })
    }

    fn refused(&self) -> Call<'_, u64> {
        Box::pin(async { Ok(lock(&self.0).refused) })
    }

    fn admit_and(&self, pass: Pass, work: Work) -> Call<'_, Verdict> {
        Box::pin(async move { self.step(&pass, Ask::Write, work) })
    }
}
