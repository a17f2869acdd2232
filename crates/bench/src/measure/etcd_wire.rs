//! As much of etcd's API as floors and its own Lock service need, by the same client stack as ours. Written by hand, so that
//! building needs no protobuf compiler.

use prost::Message;
use tonic::{Request, Streaming, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use crate::task::{Failure, Task};

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    pub(super) delete: Option<Delete>,
}

/// "This key was created at that revision"; 0 for a key that is not there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 1 is the revision of creation.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub(super) created: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Transaction {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Operation>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Done {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    /// Of a transaction.
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Revoke {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    from: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Watch {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Watched {
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Event {
    /// 1 is a deletion.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
}

/// A connection to the first member.
#[derive(Clone, Debug)]
pub(super) struct Etcd(Channel);

impl Etcd {
    pub(super) async fn connect(task: &Task) -> Result<Self, Failure> {
        let endpoint = Channel::from_shared(format!("http://{}", task.host()))?.tcp_nodelay(true);
        Ok(Self(endpoint.connect().await?))
    }

    async fn call<Q, A>(&self, path: &'static str, question: Q) -> Result<A, Failure>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        Ok(grpc.unary(Request::new(question), PathAndQuery::from_static(path), codec).await?.into_inner())
    }

    pub(super) async fn put(&self, key: &str) -> Result<Done, Failure> {
        let put = Put { key: key.as_bytes().to_vec(), value: b"benchmark".to_vec(), lease: 0 };
        self.call("/etcdserverpb.KV/Put", put).await
    }

    pub(super) async fn change(&self, transaction: Transaction) -> Result<Done, Failure> {
        self.call("/etcdserverpb.KV/Txn", transaction).await
    }

    pub(super) async fn grant(&self) -> Result<i64, Failure> {
        let granted: Granted = self.call("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: 60 }).await?;
        Ok(granted.id)
    }

    pub(super) async fn revoke(&self, id: i64) -> Result<(), Failure> {
        self.call::<_, Nothing>("/etcdserverpb.Lease/LeaseRevoke", Revoke { id }).await.map(drop)
    }

    /// etcd's own Lock service; waits until it holds.
    pub(super) async fn lock(&self, name: &str, lease: i64) -> Result<Vec<u8>, Failure> {
        let lock = Lock { name: name.as_bytes().to_vec(), lease };
        let locked: Locked = self.call("/v3lockpb.Lock/Lock", lock).await?;
        Ok(locked.key)
    }

    pub(super) async fn unlock(&self, key: Vec<u8>) -> Result<(), Failure> {
        self.call::<_, Nothing>("/v3lockpb.Lock/Unlock", Delete { key }).await.map(drop)
    }

    /// What happens to a key from this revision on.
    pub(super) async fn watch(&self, key: &str, from: i64) -> Result<Streaming<Watched>, Failure> {
        let create = WatchCreate { key: key.as_bytes().to_vec(), from };
        let order = Watch { create: Some(create) };
        // The watch lasts as long as its orders do.
        let orders = futures_util::StreamExt::chain(
            futures_util::stream::iter([order]),
            futures_util::stream::pending(),
        );
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<Watch, Watched>::default();
        Ok(grpc.streaming(Request::new(orders), path, codec).await?.into_inner())
    }
}
