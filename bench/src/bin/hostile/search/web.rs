//! The same for HTTP, which has a thread of its own: the processor time of all threads of the node
//! for one request. No turn of a shard takes more than that.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_node::Spin;
use paxoslease_rig::clock;
use paxoslease_server::{Config, Server};
use serde_json::Value;

use super::input::{Generator, Random, Words};
use super::node::{Argument, Cost, Spec};
use super::{Found, KEPT, MEASURED, Worst};

const DOCUMENT: &str = include_str!("../../../../../docs/openapi.json");
/// How long a response may take, as that of a watch does.
const PATIENCE: Duration = Duration::from_millis(100);

/// A route: its parameters and fields are the arguments of its [`Spec`].
struct Route {
    method: String,
    path: String,
    query: Vec<String>,
    fields: Vec<String>,
}

pub(super) fn search(each: Duration) -> Result<Vec<Worst>> {
    let peers = TcpListener::bind("127.0.0.1:0")?;
    let node = paxoslease_node::Config::new("search", 1);
    let node = node.peer(1, peers.local_addr()?.to_string()).ephemeral().shards(1).spin(Spin::Off);
    let config = Config::new(node).listen("off", "127.0.0.1:0");
    let server = Server::start_on(config, Some(peers))?;
    let address = server.http().context("it listens")?;
    let worst = routes()?.iter().map(|route| search_route(address, route, each)).collect();
    server.shutdown();
    worst
}

fn routes() -> Result<Vec<Route>> {
    let document: Value = serde_json::from_str(DOCUMENT)?;
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, operation) in methods.as_object().context("methods")? {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.map(|parameter| resolved(&document, parameter));
            let queries = parameters.filter(|parameter| parameter["in"] == "query");
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let fields = resolved(&document, schema)["properties"].as_object();
            routes.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                query: queries
                    .filter_map(|query| Some(query["name"].as_str()?.to_owned()))
                    .collect(),
                fields: fields.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
            });
        }
    }
    Ok(routes)
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str().and_then(|path| document.pointer(path.trim_start_matches('#'))) {
        Some(found) => found,
        None => value,
    }
}

fn search_route(address: SocketAddr, route: &Route, each: Duration) -> Result<Worst> {
    let name = format!("{} {}", route.method, route.path);
    let mut random = Random::new(&name);
    let generator = Generator::default();
    let names = ["name"].into_iter().map(str::to_owned);
    let arguments = names.chain(route.query.iter().chain(&route.fields).cloned());
    let arguments = arguments.map(|name| Argument { name, token: None, is_optional: false });
    let spec = Spec { name: name.clone(), subcommand: None, arguments: arguments.collect() };
    let mut kept: Vec<Found> = Vec::new();
    let until = clock::now() + each;
    let mut tried = 0;
    while clock::now() < until {
        let words = match kept.len() {
            0 => generator.words(&mut random, &spec),
            len if random.below(4) > 0 => {
                let parent = random.below(len);
                generator.changed(&mut random, &spec, &kept[parent].words)
            }
            _ => generator.words(&mut random, &spec),
        };
        tried += 1;
        let mut cost = cost_of(address, route, &words)?;
        let is_best = |cost: Cost| kept.first().is_none_or(|best| cost.turn > best.cost.turn);
        for _ in 1..MEASURED {
            if is_best(cost) {
                cost = cost.min(cost_of(address, route, &words)?);
            }
        }
        kept.push(Found { words, cost });
        kept.sort_by_key(|found| std::cmp::Reverse(found.cost.turn));
        kept.truncate(KEPT);
    }
    Ok(Worst { name, tried, found: kept.swap_remove(0) })
}

fn cost_of(address: SocketAddr, route: &Route, words: &Words) -> Result<Cost> {
    let request = request(address, route, words);
    let own = clock::thread_time();
    let all = clock::process_time();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The node may refuse what is too long before it has read all of it.
    let _refused = stream.write_all(&request);
    let _late = stream.read_to_end(&mut Vec::new());
    drop(stream);
    let spent = (clock::process_time() - all).saturating_sub(clock::thread_time() - own);
    Ok(Cost { turn: spent, whole: spent })
}

/// The words after the first are the name, the query and the fields of the body, in this order.
fn request(address: SocketAddr, route: &Route, words: &Words) -> Vec<u8> {
    let word = |place: usize| words.get(place).map_or(&b""[..], Vec::as_slice);
    let mut path = route.path.replace("{name}", &escaped(word(1)));
    for (place, name) in route.query.iter().enumerate() {
        let mark = if place == 0 { '?' } else { '&' };
        path = format!("{path}{mark}{name}={}", escaped(word(2 + place)));
    }
    let fields = route.fields.iter().enumerate().map(|(place, name)| {
        let text = String::from_utf8_lossy(word(2 + route.query.len() + place)).into_owned();
        let value = text.parse::<u64>().map_or(Value::String(text), Value::from);
        (name.clone(), value)
    });
    let body = Value::Object(fields.collect()).to_string();
    let body = if route.method == "POST" { body } else { String::new() };
    let method = &route.method;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

fn escaped(word: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    word.iter().take(8000).map(escape).collect()
}
