//! The OpenAPI document, made from the handlers and compared with the one that is checked in and
//! served. Only tests see this, so that what makes it is no part of the daemon.
//!
//! Routes and bodies are documented where they are handled; here are the words about the whole, and
//! about what is refused. The examples of refusals are made from the very values that are refused
//! with, so they cannot differ from what is really said.

mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_node::{TextError, TtlError};
use serde_json::Value;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::{self, ContentBuilder, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi, ToSchema as _};

use super::refusal::{Changed, ErrorBody, Problem, Refusal};
use super::watch::crowded;
use super::{cell, leases, page, watch};
pub(super) use status::CellStatus;

#[derive(OpenApi)]
#[openapi(
    paths(
        leases::acquire, leases::renew, leases::release, leases::inspect, leases::list,
        watch::watch, cell::cell, cell::healthz, cell::readyz, cell::metrics, cell::openapi,
        page::page,
    ),
    info(
        title = "PaxosLease",
        description = "Leases with fences, granted by a majority of a cell of nodes.\n\n\
            **What is the truth and what is a hint.** Only the holder knows that it holds: it \
            counts `ttl_ms` from *before it sent* the request that granted or renewed the lease, \
            plus `waited_ms`, less the drift allowance of the cell, and stops in time: \
            `ends_at = sent_at + max(0, waited_ms / r - g) + ttl_ms / r - 2 g`, where \
            `r = (1 + e) / (1 - e)`, `e = clock_drift_ppm / 10^6` and `g = clock_granularity_us`, \
            on a clock that counts sleep. `waited_ms` is 0 for a renewal. Whatever `GET` answers \
            is a hint, what this node or a quorum of acceptors said a moment ago: good for \
            showing, never for deciding.\n\n\
            **Fences** are strings, because they exceed 2^53. They grow with every tenure of a \
            name: let your store keep the highest it has seen and refuse lower ones.\n\n\
            **Names** are percent-encoded in paths: `jobs/nightly` is `jobs%2Fnightly`. Plain \
            slashes are taken too, but a last segment `acquire`, `renew` or `release` is always \
            what to do.\n\n\
            **Waiting.** A client that goes away while its acquire waits leaves the queue.\n\n\
            **Errors** are JSON with `error`, for programs, and `message`, for people. Besides \
            those listed: 404 for other paths, 405 for other methods, 429 for connections over \
            the limit, and 421 from a node on loopback without tokens that is asked by another \
            name than `localhost`.\n\n\
            **Tokens.** Where the node has an `[[access]]`, requests bring their token as \
            `authorization: Bearer`, or as the password of `Basic`. Without one that is known they \
            get 401 `unauthorized`; for what it does not allow, 403 `forbidden`. `/healthz`, \
            `/readyz` and this document take none. Lists and watches show what the token may read.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(ErrorBody)),
    tags(
        (name = "leases", description = "Taking, keeping and giving back leases."),
        (name = "hints", description = "Looking on. Hints, all of it."),
        (name = "operation", description = "Probes and numbers for those who run a node."),
    ),
)]
struct Document;

/// Rewritten by `INSTA_UPDATE=always cargo test -p paxoslease-server`, as transcripts are.
#[test]
fn the_committed_document_is_what_the_handlers_say() {
    let mut made = Document::openapi().to_pretty_json().expect("plain data");
    made.push('\n');
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        std::fs::write(path, &made).expect("written");
    }
    assert!(made == super::OPENAPI, "docs/openapi.json is behind; see this test's comment");
}

/// One response per status, with an example of each kind of refusal.
fn responses(refusals: &[Refusal]) -> BTreeMap<String, RefOr<openapi::Response>> {
    let mut by_status: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
    for refusal in refusals {
        let example = serde_json::to_value(refusal.body()).expect("plain data");
        let code = example["error"].as_str().expect("a name").to_owned();
        by_status.entry(refusal.status().as_str().to_owned()).or_default().push((code, example));
    }
    let responses = by_status.into_iter().map(|(status, examples)| {
        let codes: Vec<String> = examples.iter().map(|(code, _)| format!("`{code}`")).collect();
        let examples = examples
            .into_iter()
            .map(|(code, example)| (code, ExampleBuilder::new().value(Some(example)).build()));
        let content = ContentBuilder::new()
            .schema(Some(openapi::Ref::from_schema_name(ErrorBody::name())))
            .examples_from_iter(examples)
            .build();
        let response = ResponseBuilder::new()
            .description(codes.join(", "))
            .content("application/json", content);
        (status, response.build().into())
    });
    responses.collect()
}

/// Declares what an operation may be refused with.
macro_rules! refused {
    ($($name:ident => [$($refusals:expr),+ $(,)?];)+) => {$(
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
                responses(&[$($refusals),+].concat())
            }
        }
    )+};
}

refused! {
    NotAcquired => [
        bad_body(),
        bad_ttl(),
        bad_holder(),
        held(),
        busy(),
        no_majority(Changed::NothingLasting),
    ];
    NotRenewed => [bad_body(), bad_ttl(), not_held(), busy(), no_majority(Changed::NothingLasting)];
    NotReleased => [bad_body(), not_held(), busy(), no_majority(Changed::Released)];
    NotInspected => [bad_name(), nobody_holds(), busy(), no_majority(Changed::Nothing)];
    NotListed => [bad_query(), vec![Refusal::Stopping]];
    NotWatched => [bad_query(), vec![crowded(), Refusal::Stopping]];
    NotTold => [vec![Refusal::Stopping]];
    NotReady => [no_majority(Changed::Nothing)];
}

fn nightly() -> String {
    "jobs/nightly".to_owned()
}

fn bad_name() -> Vec<Refusal> {
    vec![Refusal::Name(TextError::TooLong { len: 600, max: 512 })]
}

fn bad_body() -> Vec<Refusal> {
    let unknown = "unknown field \"tll\"; the nearest known field is \"ttl\"";
    let mut refusals = vec![
        Refusal::BadRequest(unknown.to_owned()),
        Refusal::Slow(super::Bounds::default().body_timeout),
        Refusal::TooLarge { max: super::BODY_MAX },
        Refusal::MediaType,
    ];
    refusals.extend(bad_name());
    refusals
}

fn bad_query() -> Vec<Refusal> {
    let unknown = "unknown parameter \"prefx\"; the nearest known parameter is \"prefix\"";
    vec![Refusal::BadRequest(unknown.to_owned())]
}

fn bad_ttl() -> Vec<Refusal> {
    vec![Refusal::Ttl(TtlError::TooShort(Duration::from_millis(10)))]
}

fn bad_holder() -> Vec<Refusal> {
    vec![Refusal::Holder(TextError::TooLong { len: 300, max: 256 })]
}

fn held() -> Vec<Refusal> {
    let (name, holder) = (nightly(), "worker-7".to_owned());
    let remaining = Duration::from_millis(8_210);
    let by = Some((holder, 1_830_093_145_834_620_929));
    vec![Refusal::Held { name, by, remaining }]
}

fn not_held() -> Vec<Refusal> {
    vec![Refusal::NotHeld { name: nightly() }]
}

fn nobody_holds() -> Vec<Refusal> {
    vec![Refusal::NobodyHolds { name: nightly() }]
}

fn busy() -> Vec<Refusal> {
    vec![Refusal::Busy("1000000 requests wait already".to_owned())]
}

fn no_majority(changed: Changed) -> Vec<Refusal> {
    let out_of_reach = Problem::OutOfReach { unreachable: vec![2, 3] };
    let remaining = Duration::from_millis(41_250);
    let restarted = Problem::Quarantine { remaining, unreachable: Vec::new() };
    vec![
        Refusal::Cell { problem: out_of_reach, changed },
        Refusal::Cell { problem: restarted, changed },
        Refusal::Stopping,
    ]
}
