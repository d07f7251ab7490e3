//! The picture is well-formed, explains everything in words, and is the same every time.

use super::*;
use crate::trace::TraceEvent;

const MS: u64 = 1_000_000;

fn at_ms(ms: u64, event: TraceEvent) -> Entry {
    Entry { at: TrueTime(ms * MS), event }
}

fn sent(message: u64, from: u16, to: u16, text: &str) -> TraceEvent {
    TraceEvent::Sent { message, from, to, text: text.to_owned() }
}

fn stored(node: u16, counter: u64, until_ms: u64) -> TraceEvent {
    let (fence, until) = (counter << 10 | 1, TrueTime(until_ms * MS));
    TraceEvent::Stored { node, name: "x".to_owned(), fence, until }
}

fn believes(client: u32, counter: u64, until_ms: u64) -> TraceEvent {
    let (fence, until) = (counter << 10 | 1, TrueTime(until_ms * MS));
    TraceEvent::Believes { client, node: 1, name: "x".to_owned(), fence, until }
}

/// A trace with every kind of event, and with texts that must be escaped.
fn everything() -> Vec<Entry> {
    let name = || "x".to_owned();
    vec![
        at_ms(0, TraceEvent::Asked { client: 1, node: 1, text: "acquire <x> & \"y\"".to_owned() }),
        at_ms(0, sent(1, 1, 2, "Propose 1.1")),
        at_ms(0, sent(2, 1, 3, "Propose 1.1")),
        at_ms(0, sent(3, 1, 2, "Propose 1.1")),
        at_ms(0, stored(1, 1, 1000)),
        at_ms(5, TraceEvent::Lost(2)),
        at_ms(10, TraceEvent::Delivered(1)),
        at_ms(10, TraceEvent::Promised { node: 2, name: name(), ballot: "1.1".to_owned() }),
        at_ms(10, stored(2, 1, 1010)),
        at_ms(10, sent(4, 2, 1, "Accept 1.1")),
        at_ms(12, TraceEvent::Delivered(3)),
        at_ms(20, TraceEvent::Delivered(4)),
        at_ms(20, believes(1, 1, 990)),
        at_ms(30, TraceEvent::Crashed(3)),
        at_ms(40, TraceEvent::Started { node: 3, quarantine_until: Some(TrueTime(600 * MS)) }),
        at_ms(50, TraceEvent::Paused { node: 1, until: TrueTime(90 * MS) }),
        at_ms(500, stored(2, 1, 1500)),
        at_ms(510, TraceEvent::Note { node: 2, text: "<overwrites> & forgets".to_owned() }),
        at_ms(600, sent(5, 2, 3, "Propose 2.2")),
        at_ms(700, TraceEvent::Cleared { node: 2, name: name() }),
        at_ms(800, believes(2, 2, 1400)),
        at_ms(800, TraceEvent::Violation("\"x\" has 2 holders".to_owned())),
        at_ms(900, TraceEvent::Yielded { client: 1, name: name() }),
        at_ms(950, TraceEvent::Stopped(2)),
    ]
}

/// The first error in a document: an unbalanced tag or a stray markup character.
fn malformed(xml: &str) -> Option<String> {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        let entities = text.match_indices('&').map(|(i, _)| &text[i..]);
        for entity in entities {
            if !["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|known| entity.starts_with(known)) {
                return Some(format!("stray ampersand in {text:?}"));
            }
        }
        let Some(end) = rest[start..].find('>') else { return Some("unclosed tag".to_owned()) };
        let tag = &rest[start + 1..start + end];
        rest = &rest[start + end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Some(format!("</{name}> closes nothing"));
            }
        } else {
            if tag.contains('<') || !tag.matches('"').count().is_multiple_of(2) {
                return Some(format!("bad tag {tag:?}"));
            }
            if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap_or_default());
            }
        }
    }
    (!open.is_empty()).then(|| format!("left open: {open:?}"))
}

#[test]
fn the_picture_is_well_formed_whatever_the_texts() {
    let options = RenderOptions {
        title: "a <b> & \"c\"\u{1}".to_owned(),
        caption: "]]> &amp; </svg>".to_owned(),
        ..RenderOptions::default()
    };
    let svg = render(&everything(), &options);
    assert_eq!(malformed(&svg), None);
    assert!(svg.contains("acquire &lt;x&gt; &amp; &quot;y&quot; at node 1"));
    assert!(svg.contains("&lt;overwrites&gt; &amp; forgets"));
    assert!(!svg.contains('\u{1}'));
}

#[test]
fn everything_is_told_in_words() {
    let svg = render(&everything(), &RenderOptions::default());
    for text in [
        "node 3",
        "client 2",
        "Propose 1.1 (lost)",
        "Propose 1.1 (again)",
        "Propose 2.2 (late)",
        "1.1 renewed",
        "holds, fence 2.1",
        "TWO HOLDERS",
        "crashed",
        "quarantine: silent",
        "stopped",
        "1. invariant broken at 800 ms",
        "promised 1.1",
    ] {
        assert!(svg.contains(text), "no {text:?} in\n{svg}");
    }
}

#[test]
fn a_window_leaves_out_what_is_outside() {
    let window = Some((TrueTime(0), TrueTime(100 * MS)));
    let svg = render(&everything(), &RenderOptions { window, ..RenderOptions::default() });
    assert_eq!(malformed(&svg), None);
    assert!(!svg.contains("TWO HOLDERS") && !svg.contains("Propose 2.2"));
    assert!(svg.contains("Accept 1.1"));
}

#[test]
fn long_ballots_are_shortened_wherever_they_stand() {
    assert_eq!(shortened("Reject 16777220.1, t1.3 live"), "Reject 16M+4.1, t1.3 live");
    assert_eq!(shortened("16777216"), "16M+0");
    assert_eq!(shortened("no number"), "no number");
    assert_eq!(ballot(16_777_220 << 10 | 3), "16M+4.3");
    assert_eq!(ballot(7 << 10 | 1), "7.1");
}

#[test]
fn the_name_that_broke_is_the_one_shown() {
    let stored = |name: &str| {
        let (name, until) = (name.to_owned(), TrueTime(900 * MS));
        TraceEvent::Stored { node: 1, name, fence: 1 << 10 | 1, until }
    };
    let broken = TraceEvent::Violation("broken".to_owned());
    let trace = [at_ms(0, stored("a")), at_ms(1, stored("b"))];
    assert_eq!(scene::subject(&trace), "a");
    let trace = [&trace[..], &[at_ms(2, broken), at_ms(3, stored("c"))]].concat();
    assert_eq!(scene::subject(&trace), "b");
}
