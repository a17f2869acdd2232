//! For an engine that decides by itself: the call is the request, and the reply is the answer.

use leasehold_core::window::Reading;

use super::{Answer, Call, Client, Order, failed};
use crate::sim::engine::{Reply, Request};

pub(in crate::sim) struct Direct {
    pub(super) server: usize,
}

impl Client for Direct {
    fn begin(&mut self, _id: u64, call: &Call, _now: Reading, orders: &mut Vec<Order>) -> Option<Answer> {
        let request = match call.clone() {
            Call::Acquire(claim) => Request::Acquire(claim),
            Call::Renew(renewals) => Request::Renew(renewals),
            Call::Release(release) => Request::Release(release),
        };
        orders.push(Order::Send(self.server, request));
        None
    }

    fn replied(&mut self, _: u64, _: usize, reply: Reply, _: Reading, _: &mut Vec<Order>) -> Option<Answer> {
        match reply {
            Reply::Acquired(acquired) => Some(Answer::Acquired(acquired)),
            Reply::Renewed(renewed) => Some(Answer::Renewed(renewed.into_iter().map(Ok).collect())),
            Reply::Released(released) => Some(Answer::Released(released)),
            Reply::Failed(kind) => Some(failed(kind)),
            Reply::Revoked(_) | Reply::Member(_) | Reply::Etcd(_) | Reply::Observed(_) => None,
        }
    }

    fn dropped(&mut self, _id: u64) {}
}
