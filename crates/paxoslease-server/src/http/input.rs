//! What a request says: its name, the fields of its body, the parameters of its query.
//!
//! Taken one by one by whoever knows them, so that the error for one that nobody takes can name
//! the nearest that somebody would have. Nothing is guessed: a number without a unit is no span of
//! time, and a number that may have been rounded on its way is no fence.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use paxoslease_node::front::{Holder, Label, Name};
use paxoslease_node::{TextError, parse_duration};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::permit::Permit;
use super::refusal::Refusal;
use super::{App, BODY_MAX};

/// JSON numbers up to this are whole in every reader and writer of JSON.
const EXACT_MAX: u64 = 1 << 53;

/// The name in a path.
pub(super) struct LeaseName(Label);

impl LeaseName {
    pub(super) fn name(&self) -> Name<'_> {
        self.0.name()
    }
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.name().fmt(f)
    }
}

impl FromRequestParts<App> for LeaseName {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        let Path(text) = path.map_err(|_| Refusal::Name(TextError::NotUtf8))?;
        let name = Name::new(&text).map_err(Refusal::Name)?;
        Permit::of(&parts.extensions)?.check(name.as_str())?;
        Ok(Self(Label::new(name, Holder::NONE)))
    }
}

/// Something that is made of fields.
pub(super) trait FromFields: Sized {
    fn from_fields(fields: &mut Fields) -> Result<Self, Refusal>;
}

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: FromFields> FromRequest<App> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        // More than good manners: pages of other origins can make a browser post whatever looks
        // like a form, but not this, unless this server agreed beforehand. It does not.
        let media_type = request.headers().get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::MediaType);
        }
        let reading = Bytes::from_request(request, app);
        let read = tokio::time::timeout(app.body_timeout, reading).await;
        let bytes =
            read.map_err(|_| Refusal::Slow(app.body_timeout))?.map_err(
                |rejection| match rejection.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => Refusal::TooLarge { max: BODY_MAX },
                    _ => Refusal::BadRequest(format!("the body broke off: {rejection}")),
                },
            )?;
        let Entries(entries) = serde_json::from_slice(&bytes)
            .map_err(|error| Refusal::BadRequest(format!("the body is no JSON object: {error}")))?;
        Fields::new("field", entries)?.into().map(Self)
    }
}

/// The parameters of a query.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: FromFields> FromRequestParts<App> for Parameters<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let Query(pairs) = query.map_err(|rejection| Refusal::BadRequest(rejection.body_text()))?;
        let entries = pairs.into_iter().map(|(key, text)| (key, Value::String(text)));
        Fields::new("parameter", entries)?.into().map(Self)
    }
}

/// An object as it is written; a map would keep the last of two fields of one name.
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

/// What nobody has taken yet, and what somebody would have.
pub(super) struct Fields {
    /// What to call one of them.
    kind: &'static str,
    entries: BTreeMap<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    fn new(
        kind: &'static str,
        said: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Self, Refusal> {
        let mut entries = BTreeMap::new();
        for (key, value) in said {
            if entries.contains_key(&key) {
                let problem = format!("the {kind} {key:?} is there twice; say it once");
                return Err(Refusal::BadRequest(problem));
            }
            entries.insert(key, value);
        }
        Ok(Self { kind, entries, known: Vec::new() })
    }

    /// All of it, with nothing left over.
    fn into<T: FromFields>(mut self) -> Result<T, Refusal> {
        let taken = T::from_fields(&mut self);
        // A misspelt field is the reason why another is missing, so it goes first.
        match self.entries.into_keys().next() {
            None => taken,
            Some(key) => {
                let far = |known: &&&str| strsim::damerau_levenshtein(&key, known);
                let nearest = self.known.iter().min_by_key(far).expect("some are known");
                let kind = self.kind;
                let problem =
                    format!("unknown {kind} {key:?}; the nearest known {kind} is {nearest:?}");
                Err(Refusal::BadRequest(problem))
            }
        }
    }

    /// `null` is as good as nothing.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.entries.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(unlike(key, &value, "text in quotes")),
        }
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, Refusal> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => match parse_duration(&text) {
                Ok(span) => Ok(Some(span)),
                Err(error) => Err(Refusal::BadRequest(format!("{key:?}: {error}"))),
            },
            Some(value @ Value::Number(_)) => {
                let expected =
                    format!("a number and its unit in quotes, \"{value}s\" or \"{value}ms\"");
                Err(unlike(key, &value, &expected))
            }
            Some(value) => Err(unlike(key, &value, "a number and its unit in quotes, \"15s\"")),
        }
    }

    pub(super) fn fence(&mut self, key: &'static str) -> Result<u64, Refusal> {
        let value = required(key, self.take(key), "\"42\"")?;
        let fence = match &value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.as_u64().filter(|fence| *fence <= EXACT_MAX),
            _ => None,
        };
        let expected = "the text that an acquire answered, digits in quotes, for JSON numbers this \
                        large are rounded by some";
        fence.ok_or_else(|| unlike(key, &value, expected))
    }

    /// A text that can be read as something.
    pub(super) fn parse<T: FromStr>(
        &mut self,
        key: &'static str,
        expected: &str,
    ) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let value = text.parse().map_err(|_| unlike(key, &Value::String(text), expected))?;
        Ok(Some(value))
    }
}

pub(super) fn required<T>(key: &str, value: Option<T>, example: &str) -> Result<T, Refusal> {
    let problem = || format!("{key:?} is missing; write {{{key:?}: {example}}}");
    value.ok_or_else(|| Refusal::BadRequest(problem()))
}

fn unlike(key: &str, value: &Value, expected: &str) -> Refusal {
    let mut shown = value.to_string();
    shown.truncate(shown.floor_char_boundary(60));
    Refusal::BadRequest(format!("{key:?} is {shown}; expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: Value) -> Fields {
        let Entries(entries) = serde_json::from_value(json).expect("an object");
        Fields::new("field", entries).expect("nothing is said twice")
    }

    struct Ask(u64, Option<Duration>);

    impl FromFields for Ask {
        fn from_fields(fields: &mut Fields) -> Result<Self, Refusal> {
            Ok(Self(fields.fence("fence")?, fields.duration("ttl")?))
        }
    }

    fn ask(json: Value) -> Result<(u64, Option<Duration>), String> {
        let asked: Result<Ask, Refusal> = fields(json).into();
        asked.map(|Ask(fence, ttl)| (fence, ttl)).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_fence_is_taken_only_as_it_was_given() {
        let exact = serde_json::json!({"fence": "9223372036854775807", "ttl": null});
        assert_eq!(ask(exact), Ok((9_223_372_036_854_775_807, None)));
        assert_eq!(ask(serde_json::json!({"fence": 42})), Ok((42, None)));
        assert_eq!(
            ask(serde_json::json!({"fence": 9_007_199_254_740_992_u64})).map(|f| f.0),
            Ok(EXACT_MAX)
        );
        for rounded in ["9007199254740993", "42.0", "4.2e1", "-1", "true", "\" 42\"", "\"4x\""] {
            let value: Value = serde_json::from_str(rounded).expect("JSON");
            let refused = ask(serde_json::json!({ "fence": value })).expect_err("inexact");
            assert!(refused.contains("digits in quotes"), "{refused}");
        }
        let missing = ask(serde_json::json!({})).expect_err("missing");
        assert!(missing.contains("\"fence\" is missing; write {\"fence\": \"42\"}"), "{missing}");
    }

    #[test]
    fn a_span_of_time_has_a_unit() {
        let refused = ask(serde_json::json!({"fence": "1", "ttl": 15})).expect_err("no unit");
        assert!(refused.contains("\"ttl\" is 15; expected"), "{refused}");
        assert!(refused.contains("\"15s\" or \"15ms\""), "{refused}");
        let refused = ask(serde_json::json!({"fence": "1", "ttl": "15"})).expect_err("no unit");
        assert!(refused.contains("write 15s or 15ms"), "{refused}");
        let refused = ask(serde_json::json!({"fence": "1", "ttl": ["15s"]})).expect_err("no text");
        assert!(refused.contains("\"ttl\" is [\"15s\"]; expected"), "{refused}");
    }

    #[test]
    fn an_unknown_field_is_told_before_what_is_missing_for_it() {
        let refused = ask(serde_json::json!({"fnece": "1"})).expect_err("unknown");
        assert!(
            refused.starts_with("unknown field \"fnece\"; the nearest known field is \"fence\""),
            "{refused}"
        );
    }
}
