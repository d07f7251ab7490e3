//! The OpenAPI document describes what a daemon answers, and nothing else.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use paxoslease_node::front::{Name, Request};
use paxoslease_server::http::OPENAPI;
use serde_json::{Value, json};

use crate::harness::{Cell, Daemon, Raw, Reply, tokens, until};

fn document() -> Value {
    serde_json::from_str(OPENAPI).expect("JSON")
}

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    assert_eq!(Cell::one()[0].get("/openapi.json").text, OPENAPI);
}

/// Calls `visit` with every value in a document.
fn walk<'a>(value: &'a Value, visit: &mut impl FnMut(&'a Value)) {
    visit(value);
    match value {
        Value::Array(values) => values.iter().for_each(|value| walk(value, visit)),
        Value::Object(values) => values.values().for_each(|value| walk(value, visit)),
        _ => {}
    }
}

/// The value itself, or the one that it refers to.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => document.pointer(&reference[1..]).expect("it resolves"),
        None => value,
    }
}

/// Path, method and description of every operation.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    let operations = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    });
    operations.collect()
}

#[test]
fn the_document_is_whole() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut used = BTreeSet::new();
    walk(&document, &mut |value| {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let pointer = reference.strip_prefix('#').expect("within the document");
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            used.insert(reference.to_owned());
        }
    });
    let kinds = ["parameters", "responses", "schemas"];
    let defined = kinds.iter().flat_map(|kind| {
        let components = document["components"][kind].as_object().expect("components");
        components.keys().map(move |name| format!("#/components/{kind}/{name}"))
    });
    assert_eq!(used, defined.collect(), "defined and used");
    let tags: Vec<&Value> =
        document["tags"].as_array().expect("tags").iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(ids.insert(id), "{id} is there twice");
        assert!(operation["summary"].is_string(), "{method} {path} says what it does");
        assert!(operation["tags"].as_array().expect("tags").iter().all(|tag| tags.contains(&tag)));
        assert_eq!(operation["requestBody"].is_object(), method == "post");
        let none = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&none);
        let named = |parameter: &&Value| resolve(&document, parameter)["in"] == "path";
        let in_path = parameters.iter().filter(named).count();
        assert_eq!(in_path, path.matches('{').count(), "{method} {path}");
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let response = resolve(&document, response);
            let described = response["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(described && response["content"].is_object(), "{method} {path} {status}");
        }
    }
}

/// Compares replies with the document, and remembers which parts of the document they used.
struct Observer {
    document: Value,
    /// Statuses by path and method.
    seen: BTreeMap<(String, String), BTreeSet<String>>,
    /// Addresses of the schemas of properties within the document.
    used: RefCell<BTreeSet<*const Value>>,
}

impl Observer {
    fn new() -> Self {
        Self { document: document(), seen: BTreeMap::new(), used: RefCell::default() }
    }

    fn get(&mut self, daemon: &Daemon, paths: &[&str]) {
        paths.iter().for_each(|path| self.see("get", path, &daemon.get(path)));
    }

    fn post(&mut self, daemon: &Daemon, path: &str, body: Value) -> Reply {
        let reply = daemon.post(path, &body);
        self.see("post", path, &reply);
        reply
    }

    fn see(&mut self, method: &str, path: &str, reply: &Reply) {
        let path = &template(path);
        let pointer = format!("/paths/{}/{method}", path.replace('/', "~1"));
        let operation = self.document.pointer(&pointer).expect("documented");
        let status = reply.status.to_string();
        let content = self.resolve(&operation["responses"][&status])["content"].as_object();
        let content = content.unwrap_or_else(|| panic!("{method} {path} {status} is undocumented"));
        let media_type = reply.header("content-type").split(';').next().expect("a type");
        let content = content.get(media_type).expect("the documented type");
        if reply.status >= 400 {
            let code = reply.field("error");
            assert!(content["examples"].get(&code).is_some(), "{method} {path} {status} {code}");
        }
        if media_type == "application/json" {
            self.check(&content["schema"], &reply.json(), &format!("{method} {path} {status}"));
        }
        self.seen.entry((path.to_owned(), method.to_owned())).or_default().insert(status);
    }

    /// Stricter than JSON Schema: every field must be documented.
    fn check(&self, schema: &Value, value: &Value, at: &str) {
        let problems = self.problems(schema, value, at);
        assert!(problems.is_empty(), "{problems:#?}");
    }

    /// Every property of a schema that may be made of others.
    fn properties<'a>(
        &'a self,
        schema: &'a Value,
        into: &mut BTreeMap<&'a str, (&'a Value, bool)>,
    ) {
        let schema = self.resolve(schema);
        let required = schema["required"].as_array();
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let is_required = required.is_some_and(|all| all.iter().any(|name| name == key));
            into.insert(key, (property, is_required));
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.properties(part, into);
        }
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        resolve(&self.document, value)
    }

    fn problems(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let schema = self.resolve(schema);
        if let Some(choices) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let fits = choices.iter().any(|choice| self.problems(choice, value, at).is_empty());
            return if fits { Vec::new() } else { vec![format!("{at}: no choice fits {value}")] };
        }
        let kinds = match &schema["type"] {
            Value::String(kind) => vec![kind.as_str()],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if schema.get("allOf").is_some() => vec!["object"],
            _ => return Vec::new(),
        };
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        if !kinds.contains(&kind) {
            return vec![format!("{at}: {value} is no {kinds:?}")];
        }
        match value {
            Value::Array(values) => {
                let check = |value| self.problems(&schema["items"], value, at);
                values.iter().flat_map(check).collect()
            }
            Value::Object(values) => self.object_problems(schema, values, at),
            Value::String(_) if schema["enum"].as_array().is_some_and(|e| !e.contains(value)) => {
                vec![format!("{at}: {value} is not documented")]
            }
            _ => Vec::new(),
        }
    }

    fn object_problems(
        &self,
        schema: &Value,
        values: &serde_json::Map<String, Value>,
        at: &str,
    ) -> Vec<String> {
        let mut known = BTreeMap::new();
        self.properties(schema, &mut known);
        // The document itself is served as whatever object it is.
        if known.is_empty() {
            return Vec::new();
        }
        let missing =
            known.iter().filter(|(key, (_, required))| *required && !values.contains_key(**key));
        let mut problems: Vec<String> =
            missing.map(|(key, _)| format!("{at}: {key} is missing")).collect();
        for (key, value) in values {
            match known.get(key.as_str()) {
                None => problems.push(format!("{at}: {key} is undocumented")),
                Some((schema, _)) => {
                    self.used.borrow_mut().insert(std::ptr::from_ref(*schema));
                    problems.extend(self.problems(schema, value, &format!("{at}.{key}")));
                }
            }
        }
        problems
    }
}

const ACTIONS: [&str; 3] = ["acquire", "renew", "release"];

/// The path in the document for the path of a request.
fn template(path: &str) -> String {
    let path = path.split('?').next().expect("a path");
    match path.strip_prefix("/v1/leases/").map(|rest| rest.split_once('/')) {
        None => path.to_owned(),
        Some(None) => "/v1/leases/{name}".to_owned(),
        Some(Some((_, action))) => format!("/v1/leases/{{name}}/{action}"),
    }
}

/// The replies of a cell with a majority.
fn observe_success(observer: &mut Observer) {
    let cell = Cell::three();
    let member = &cell[0];
    let granted = observer.post(member, "/v1/leases/x/acquire", json!({"ttl": "30s"}));
    let fence = granted.field("fence");
    observer.post(member, "/v1/leases/x/acquire", json!({"ttl": "30s"}));
    observer.post(member, "/v1/leases/x/renew", json!({"fence": fence, "ttl": "30s"}));
    let mut waiter = Raw::connect(member.http());
    waiter.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "5s", "wait": "10m"}"#);
    until("the client waits", || member.status().waiters == 1);
    observer.get(member, &["/v1/leases/x", "/v1/leases", "/v1/cell", "/healthz", "/readyz"]);
    observer.get(member, &["/metrics", "/openapi.json", "/"]);
    drop(waiter);
    observer.post(member, "/v1/leases/x/release", json!({ "fence": fence }));
    observer.post(member, "/v1/leases/x/release", json!({ "fence": fence }));
    observer.post(member, "/v1/leases/x/renew", json!({"fence": fence, "ttl": "5s"}));
    observer.get(member, &["/v1/leases/free"]);
    observe_watch(observer, member);
}

fn observe_watch(observer: &mut Observer, member: &Daemon) {
    let mut raw = Raw::connect(member.http());
    raw.watch("", "");
    let fence = member.take("seen");
    member.post("/v1/leases/seen/release", &json!({ "fence": fence }));
    member.post("/v1/leases/brief/acquire", &json!({"ttl": "50ms"}));
    let content = "/paths/~1v1~1watch/get/responses/200/content/text~1event-stream/schema";
    let schema = observer.document.pointer(content).expect("documented").clone();
    let mut missing = BTreeSet::from(["held", "freed", "expired"]);
    while !missing.is_empty() {
        let (kind, data) = raw.event().expect("open");
        observer.check(&schema, &data, &kind);
        missing.remove(kind.as_str());
    }
    let path = ("/v1/watch".to_owned(), "get".to_owned());
    observer.seen.entry(path).or_default().insert("200".to_owned());
}

/// The replies about the members of a cell.
fn observe_members(observer: &mut Observer) {
    const PATH: &str = "/v1/cell/members";
    let cell = Cell::with_newcomer();
    let member = &cell[0];
    let address = &cell[1].config.node.peers[&2];
    let nodes = json!([format!("2={address}")]);
    let add = |option: &str| json!({"action": "add", "nodes": nodes, option: true});
    observer.post(member, PATH, json!({"action": "remove", "nodes": ["7"]}));
    let unconfirmed = observer.post(member, PATH, add("dry_run")).json()["doubts"][0].clone();
    assert_eq!(unconfirmed, "2 members survive no more losses than 1");
    // The change waits for this lease.
    observer.post(member, "/v1/leases/x/acquire", json!({"ttl": "30s"}));
    assert_eq!(observer.post(member, PATH, add("yes")).json()["decided"], 2);
    let mut status = Value::Null;
    until("the change is shown", || {
        status = member.get("/v1/cell").json();
        status["change"]["to"] == json!([1, 2])
    });
    observer.get(member, &["/v1/cell"]);
    let page = member.get("/").text;
    assert!(page.contains("The members change from 1 to 1 2 · epoch 2 · "), "{page}");
    assert!(page.contains("<td>● up, joins</td>"), "{page}");
    let refused = observer.post(member, PATH, add("yes")).field("message");
    assert!(refused.contains("is under way"), "{refused}");
    let aborted = observer.post(member, PATH, json!({"action": "abort"})).json();
    assert_eq!(aborted["decided"], 3, "{aborted}");
    member.node().shutdown_blocking();
    observer.post(member, PATH, json!({"action": "abort"}));
}

/// The replies to invalid requests.
fn observe_bad_requests(observer: &mut Observer) {
    let cell = Cell::one();
    let member = &cell[0];
    let brief = Duration::from_millis(50);
    let (_http, impatient, _) = member.serve_http(|bounds| bounds.body_timeout = brief);
    let large = " ".repeat(17_000);
    let actions = ACTIONS.map(|action| format!("/v1/leases/x/{action}"));
    for path in actions.into_iter().chain(["/v1/cell/members".to_owned()]) {
        for (content_type, body) in
            [("application/json", "{}"), ("application/json", &large), ("text/plain", "{}")]
        {
            let refused = member.ask("POST", &path, None, Some((content_type, body)));
            observer.see("post", &path, &refused);
        }
        let mut slow = Raw::connect(impatient);
        let headers = "content-type: application/json\r\ncontent-length: 9\r\n";
        slow.send_head(&format!("POST {path}"), headers);
        observer.see("post", &path, &slow.reply());
    }
    let invalid = ["/v1/leases/%FF", "/v1/leases?prefx=", "/v1/watch?prefx=", "/?prefx="];
    observer.get(member, &invalid);
}

/// Sends a valid request of each kind about a lease, all of which get this status.
fn observe_refusals(observer: &mut Observer, member: &Daemon, status: u16) {
    let bodies =
        [json!({"ttl": "5s"}), json!({"ttl": "5s", "fence": "1025"}), json!({"fence": "1025"})];
    for (action, body) in ACTIONS.iter().zip(bodies) {
        let refused = observer.post(member, &format!("/v1/leases/x/{action}"), body);
        assert_eq!(refused.status, status, "{refused:?}");
    }
    observer.get(member, &["/v1/leases/x"]);
}

/// The replies at a limit.
fn observe_limits(observer: &mut Observer) {
    let cell = Cell::first_of_three(|config| {
        config.node.limits.inflight = 1;
        config.node.timing.request_timeout = Duration::from_secs(3600);
        config.node.shards = 1;
    });
    let member = &cell[0];
    // While this request waits for a majority, every other exceeds the limit.
    let lease = Name::new("busy").expect("a name").into();
    let _occupied = member.node().remote().ask(Request::Inspect { lease });
    observe_refusals(observer, member, 429);
    let (_http, crowded, _) = member.serve_http(|bounds| bounds.watchers = 0);
    let mut raw = Raw::connect(crowded);
    raw.ask("GET", "/v1/watch", "");
    observer.see("get", "/v1/watch", &raw.reply());
}

/// The replies without a majority, in quarantine, and of a node that has stopped.
fn observe_trouble(observer: &mut Observer) {
    let cell = Cell::first_of_three(|config| {
        config.node.timing.request_timeout = Duration::from_millis(50);
    });
    let member = &cell[0];
    observe_refusals(observer, member, 503);
    observer.get(member, &["/readyz", "/v1/cell"]);
    let diskless = Cell::one();
    observer.post(&diskless[0], "/v1/leases/x/acquire", json!({"durable": true}));
    let granted = diskless[0].post("/v1/leases/x/acquire", &json!({"ttl": "30s"}));
    let fence = granted.field("fence");
    observer.post(&diskless[0], "/v1/leases/x/renew", json!({"fence": fence, "durable": true}));
    let quarantined = Cell::one_with(|config| config.node.ephemeral = false);
    observer.get(&quarantined[0], &["/readyz"]);
    member.node().shutdown_blocking();
    observer.get(member, &["/v1/cell", "/v1/watch", "/readyz", "/v1/leases", "/"]);
}

/// The replies to requests for a foreign host, without a token, and without the permission. An
/// operation that the document declares open needs no token.
fn observe_denials(observer: &mut Observer) {
    let (open, closed) = (Cell::one(), Cell::one_with(|config| config.access = tokens()));
    let document = document();
    for (path, method, operation) in operations(&document) {
        let asked = path.replace("{name}", "jobs%2Fx");
        let upper = method.to_uppercase();
        let mut rebound = Raw::connect(open[0].http());
        rebound.send(&format!("{upper} {asked} HTTP/1.1\r\nhost: node.example\r\n\r\n"));
        observer.see(method, &asked, &rebound.reply());
        let without_token = closed[0].ask(&upper, &asked, None, None);
        observer.see(method, &asked, &without_token);
        let security = operation.get("security").unwrap_or(&document["security"]);
        let is_open = security.as_array().is_some_and(Vec::is_empty);
        assert_eq!(without_token.status == 401, !is_open, "{method} {path}: {without_token:?}");
        if !is_open {
            let token = if method == "post" { "reader" } else { "all" };
            observer.see(method, &asked, &closed[0].ask(&upper, &asked, Some(token), None));
        }
    }
}

#[test]
fn every_documented_field_and_parameter_is_known() {
    let (document, cell) = (document(), Cell::one());
    for (path, _, operation) in operations(&document) {
        let path = path.replace("{name}", "x");
        let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        if let Some(reference) = body.as_str() {
            let schema = document.pointer(&reference[1..]).expect("it resolves");
            for key in schema["properties"].as_object().expect("properties").keys() {
                let mut body = schema["example"].clone();
                assert!(!body[key].is_null(), "{path}: the example lacks {key}");
                body[key] = json!([]);
                let message = cell[0].post(&path, &body).field("message");
                assert!(message.starts_with(&format!("{key:?} is []; expected ")), "{message}");
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = resolve(&document, parameter);
            if parameter["in"] == "query" {
                let key = parameter["name"].as_str().expect("a name");
                // The error names the first unknown parameter.
                let refused = cell[0].get(&format!("{path}?{key}=1&zzz=1")).field("message");
                assert!(refused.starts_with("unknown parameter \"zzz\""), "{key}: {refused}");
            }
        }
    }
}

#[test]
fn all_that_is_documented_is_observed_and_the_reverse() {
    let mut observer = Observer::new();
    observe_success(&mut observer);
    observe_members(&mut observer);
    observe_bad_requests(&mut observer);
    observe_limits(&mut observer);
    observe_trouble(&mut observer);
    observe_denials(&mut observer);
    for (path, method, operation) in operations(&observer.document) {
        let documented: BTreeSet<String> =
            operation["responses"].as_object().expect("responses").keys().cloned().collect();
        let seen = observer.seen.get(&(path.to_owned(), method.to_owned()));
        assert_eq!(seen, Some(&documented), "{method} {path}");
    }
    let used = observer.used.borrow();
    for (name, schema) in observer.document["components"]["schemas"].as_object().expect("schemas") {
        // Bodies of requests, and an event that takes megabytes to provoke (see `watching.rs`).
        if ["Acquire", "Members", "Renew", "Release", "Missed"].contains(&name.as_str()) {
            continue;
        }
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            assert!(used.contains(&std::ptr::from_ref(property)), "{name}.{key} is never used");
        }
    }
}
