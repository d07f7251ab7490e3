//! The messages of etcd's gRPC interface that a lock needs, with the fields that it uses. The
//! numbers are those of etcd's `rpc.proto` and `kv.proto`. The crate `etcd-client` has them all,
//! but needs `protoc` to build.

use prost::{Message, Oneof};

use super::call::Answer;

pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const DELETE: &str = "/etcdserverpb.KV/DeleteRange";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// Of [`Compare`].
pub(super) const EQUAL: i32 = 0;
pub(super) const CREATE: i32 = 1;
/// Of [`RangeRequest`].
pub(super) const ASCEND: i32 = 1;
pub(super) const DESCEND: i32 = 2;
pub(super) const BY_CREATION: i32 = 2;
/// Of [`Event`].
pub(super) const DELETED: i32 = 1;

/// Messages with their fields: name, Rust type, and in brackets etcd's type and number.
macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty [$($kind:tt)*])* })*) => { $(
        #[derive(Clone, PartialEq, Message)]
        pub(super) struct $name {
            $(#[prost($($kind)*)] pub(super) $field: $type,)*
        }
    )* };
}

messages! {
    Header {
        member_id: u64 [uint64, tag = "2"]
        revision: i64 [int64, tag = "3"]
    }
    KeyValue {
        key: Vec<u8> [bytes = "vec", tag = "1"]
        create_revision: i64 [int64, tag = "2"]
    }
    RangeRequest {
        key: Vec<u8> [bytes = "vec", tag = "1"]
        range_end: Vec<u8> [bytes = "vec", tag = "2"]
        limit: i64 [int64, tag = "3"]
        sort_order: i32 [int32, tag = "5"]
        sort_target: i32 [int32, tag = "6"]
        max_create_revision: i64 [int64, tag = "13"]
    }
    RangeResponse {
        header: Option<Header> [message, optional, tag = "1"]
        kvs: Vec<KeyValue> [message, repeated, tag = "2"]
    }
    PutRequest {
        key: Vec<u8> [bytes = "vec", tag = "1"]
        value: Vec<u8> [bytes = "vec", tag = "2"]
        lease: i64 [int64, tag = "3"]
    }
    DeleteRequest {
        key: Vec<u8> [bytes = "vec", tag = "1"]
    }
    DeleteResponse {
        deleted: i64 [int64, tag = "2"]
    }
    RequestOp {
        request: Option<Request> [oneof = "Request", tags = "1, 2, 3"]
    }
    ResponseOp {
        range: Option<RangeResponse> [message, optional, tag = "1"]
    }
    // Whether a key was created at this revision; zero if it does not exist. The field is part of
    // a oneof, so zero is encoded, too.
    Compare {
        result: i32 [int32, tag = "1"]
        target: i32 [int32, tag = "2"]
        key: Vec<u8> [bytes = "vec", tag = "3"]
        create_revision: Option<i64> [int64, optional, tag = "5"]
    }
    TxnRequest {
        compare: Vec<Compare> [message, repeated, tag = "1"]
        success: Vec<RequestOp> [message, repeated, tag = "2"]
        failure: Vec<RequestOp> [message, repeated, tag = "3"]
    }
    TxnResponse {
        header: Option<Header> [message, optional, tag = "1"]
        succeeded: bool [bool, tag = "2"]
        responses: Vec<ResponseOp> [message, repeated, tag = "3"]
    }
    LeaseGrantRequest {
        ttl_seconds: i64 [int64, tag = "1"]
    }
    LeaseGrantResponse {
        id: i64 [int64, tag = "2"]
    }
    // To revoke it or to keep it alive.
    LeaseIdRequest {
        id: i64 [int64, tag = "1"]
    }
    // A ttl of zero if the lease is over.
    LeaseKeepAliveResponse {
        id: i64 [int64, tag = "2"]
        ttl_seconds: i64 [int64, tag = "3"]
    }
    WatchRequest {
        create: Option<WatchCreate> [message, optional, tag = "1"]
        cancel: Option<WatchCancel> [message, optional, tag = "2"]
    }
    WatchCreate {
        key: Vec<u8> [bytes = "vec", tag = "1"]
        start_revision: i64 [int64, tag = "3"]
        watch_id: i64 [int64, tag = "7"]
    }
    WatchCancel {
        watch_id: i64 [int64, tag = "1"]
    }
    WatchResponse {
        watch_id: i64 [int64, tag = "2"]
        canceled: bool [bool, tag = "4"]
        events: Vec<Event> [message, repeated, tag = "11"]
    }
    Event {
        kind: i32 [int32, tag = "1"]
    }
    StatusRequest {}
    StatusResponse {
        header: Option<Header> [message, optional, tag = "1"]
        version: String [string, tag = "2"]
        leader: u64 [uint64, tag = "4"]
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRequest),
}

impl Answer for LeaseKeepAliveResponse {
    fn settles(&self) -> Option<i64> {
        Some(self.id)
    }
}

impl Answer for WatchResponse {
    /// The watch is for the deletion of a key.
    fn settles(&self) -> Option<i64> {
        let is_over = self.canceled || self.events.iter().any(|event| event.kind == DELETED);
        is_over.then_some(self.watch_id)
    }
}

/// A transaction if this key was created at this revision; 0 if it does not exist.
pub(super) fn if_created_at(key: &[u8], create_revision: i64, then: Request) -> TxnRequest {
    let compare = Compare {
        result: EQUAL,
        target: CREATE,
        key: key.to_vec(),
        create_revision: Some(create_revision),
    };
    let success = vec![RequestOp { request: Some(then) }];
    TxnRequest { compare: vec![compare], success, failure: Vec::new() }
}
