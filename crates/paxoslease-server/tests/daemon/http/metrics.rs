//! What Prometheus sees.

use crate::harness::{Cell, until};

#[test]
fn every_metric_is_described() {
    let cell = Cell::three();
    cell[0].take("x");
    cell[0].wait_for_metric("paxoslease_round_seconds_count", 1.0);
    let text = cell[0].get("/metrics").text;
    let of_kind = |kind: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(&format!("# {kind} ")));
        lines.map(|line| line.split(' ').next().expect("a name").to_owned()).collect()
    };
    let (described, typed) = (of_kind("HELP"), of_kind("TYPE"));
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = line.split(['{', ' ']).next().expect("a name");
        let name = typed.iter().find(|typed| {
            let suffix = name.strip_prefix(typed.as_str());
            matches!(suffix, Some("" | "_bucket" | "_sum" | "_count"))
        });
        let name = name.unwrap_or_else(|| panic!("no type for {line}"));
        assert!(described.contains(name), "{name} is not described");
    }
    assert!(text.contains("# TYPE paxoslease_round_seconds histogram"), "{text}");
    assert!(text.contains("paxoslease_round_seconds_bucket{le=\"0.00005\"}"), "{text}");
    // The connections of the requests above are closed one by one.
    until("connections are closed", || cell[0].metric("paxoslease_http_connections") == 0.0);
}
