//! The parts of a request: the name in its path, the fields of its body, the parameters of its
//! query.
//!
//! The error for an unknown field names the nearest known one. Nothing is guessed: a span of time
//! needs a unit, and a fence must not be a number that may have been rounded on its way.

use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use paxoslease_node::front::{Holder, Label, Lasts, Name, Permits};
use paxoslease_node::{TextError, parse_duration};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::permit::Permit;
use super::refusal::Refusal;
use super::{App, BODY_MAX};
use crate::durable::lasting;

/// Every reader and writer of JSON keeps whole numbers up to this exact.
const EXACT_MAX: u64 = 1 << 53;

/// The name in a path.
pub(super) struct LeaseName(Label);

impl LeaseName {
    pub(super) fn name(&self) -> Name<'_> {
        self.0.name()
    }
}

impl FromRequestParts<App> for LeaseName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        let Path(text) = path.map_err(|_| Refusal::Name(TextError::NotUtf8))?;
        let name = Name::new(&text).map_err(Refusal::Name)?;
        Permit::of(&parts.extensions)?.check_path(name.as_str())?;
        Ok(Self(Label::new(name, Holder::NONE)))
    }
}

/// The fields of a body of JSON.
pub(super) struct Body(pub(super) Fields);

impl FromRequest<App> for Body {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        // This is a protection, too: pages of other origins can make a browser post forms, but not
        // JSON, unless this server agreed beforehand. It does not.
        let media_type = request.headers().get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::MediaType);
        }
        let reading = Bytes::from_request(request, app);
        let read = tokio::time::timeout(app.body_timeout, reading).await;
        let read = read.map_err(|_| Refusal::Slow(app.body_timeout))?;
        let bytes = read.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Refusal::TooLarge { max: BODY_MAX },
            _ => Refusal::BadRequest(format!("the body broke off: {rejection}")),
        })?;
        let Entries(entries) = serde_json::from_slice(&bytes).map_err(|error| {
            Refusal::BadRequest(format!("the body is not a JSON object: {error}"))
        })?;
        Ok(Self(Fields { kind: "field", entries }))
    }
}

/// The parameters of a query.
pub(super) struct Parameters(pub(super) Fields);

impl FromRequestParts<App> for Parameters {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let Query(pairs) = query.map_err(|rejection| Refusal::BadRequest(rejection.body_text()))?;
        let entries = pairs.into_iter().map(|(key, text)| (key, Value::String(text))).collect();
        Ok(Self(Fields { kind: "parameter", entries }))
    }
}

/// The fields of an object in their order. A map would keep the last of two with one name.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Entries;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Named values of a request.
pub(super) struct Fields {
    /// What to call one of them in errors.
    kind: &'static str,
    entries: Vec<(String, Value)>,
}

impl Fields {
    /// Refuses fields that are not known, and fields that are there twice.
    pub(super) fn only(self, known: &[&str]) -> Result<Self, Refusal> {
        let kind = self.kind;
        for (place, (key, _)) in self.entries.iter().enumerate() {
            if self.entries[..place].iter().any(|(before, _)| before == key) {
                let problem = format!("the {kind} {key:?} is there twice; say it once");
                return Err(Refusal::BadRequest(problem));
            }
        }
        let unknown = |key: &&str| !known.contains(key);
        let mut keys = self.entries.iter().map(|(key, _)| key.as_str());
        if let Some(key) = keys.find(unknown) {
            let far = |known: &&&str| strsim::damerau_levenshtein(key, known);
            let nearest = known.iter().min_by_key(far).expect("some are known");
            let problem =
                format!("unknown {kind} {key:?}; the nearest known {kind} is {nearest:?}");
            return Err(Refusal::BadRequest(problem));
        }
        Ok(self)
    }

    /// `null` counts as missing.
    fn value(&self, key: &str) -> Option<&Value> {
        let mut entries = self.entries.iter();
        let found = entries.find(|(name, value)| name == key && !value.is_null());
        found.map(|(_, value)| value)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, Refusal> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(unlike(key, value, "text in quotes")),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<&str>, Refusal> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let texts = value.as_array().filter(|list| !list.is_empty());
        let texts = texts.and_then(|list| list.iter().map(Value::as_str).collect());
        texts.ok_or_else(|| unlike(key, value, "a list of texts in quotes"))
    }

    /// `false` unless it is there.
    pub(super) fn flag(&self, key: &str) -> Result<bool, Refusal> {
        match self.value(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(unlike(key, value, "true or false")),
        }
    }

    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>, Refusal> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let expected = match value {
            Value::String(text) => {
                let parsed = parse_duration(text).map(Some);
                return parsed.map_err(|error| Refusal::BadRequest(format!("{key:?}: {error}")));
            }
            Value::Number(_) => format!("\"{value}s\" or \"{value}ms\""),
            _ => "\"15s\"".to_owned(),
        };
        Err(unlike(key, value, &format!("a number and its unit in quotes, {expected}")))
    }

    pub(super) fn ttl(&self) -> Result<Duration, Refusal> {
        self.duration("ttl")?.ok_or_else(|| missing("ttl", "15s"))
    }

    /// How long a durable lease lasts: for ever without a ttl, and with one of zero. `None` if the
    /// lease is not to be durable.
    pub(super) fn lasts(&self) -> Result<Option<Lasts>, Refusal> {
        if !self.flag("durable")? {
            return Ok(None);
        }
        let is_zero = self.value("ttl").and_then(Value::as_str) == Some("0");
        let ttl = if is_zero { None } else { self.duration("ttl")? };
        let millis = ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        Ok(Some(lasting(millis)))
    }

    pub(super) fn fence(&self) -> Result<u64, Refusal> {
        let value = self.value("fence").ok_or_else(|| missing("fence", "42"))?;
        let fence = match value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.as_u64().filter(|fence| *fence <= EXACT_MAX),
            _ => None,
        };
        let expected = "the text that an acquire answered, digits in quotes, because some programs \
                        round JSON numbers this large";
        fence.ok_or_else(|| unlike("fence", value, expected))
    }

    pub(super) fn permits(&self) -> Result<Option<Permits>, Refusal> {
        let Some(value) = self.value("permits") else { return Ok(None) };
        let permits = value.as_u64().and_then(Permits::new);
        permits.map(Some).ok_or_else(|| unlike("permits", value, "a number from 1 to 64"))
    }

    /// A text that can be parsed.
    pub(super) fn parse<T: FromStr>(
        &self,
        key: &str,
        expected: &str,
    ) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| unlike(key, &text.into(), expected))
    }
}

pub(super) fn missing(key: &str, example: &str) -> Refusal {
    Refusal::BadRequest(format!("{key:?} is missing; write {{{key:?}: {example:?}}}"))
}

fn unlike(key: &str, value: &Value, expected: &str) -> Refusal {
    let mut shown = value.to_string();
    shown.truncate(shown.floor_char_boundary(60));
    Refusal::BadRequest(format!("{key:?} is {shown}; expected {expected}"))
}
