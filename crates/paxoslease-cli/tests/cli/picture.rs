//! The picture of the quick start in the README, docs/quickstart.svg.
//!
//! The test plays the quick start with real processes and compares what they print with the words
//! of the picture. With `UPDATE_TRANSCRIPTS=1` it draws the picture anew. Numbers and spans of time
//! may differ. Every wait is for a line, so the test needs no time to pass.

use std::fmt::Write as _;
use std::path::Path;

use rustix::process::Signal;

use crate::support::{BINARY, Cell, Process};
use crate::terminal::TestTerminal;

const PICTURE: &str = "docs/quickstart.svg";
/// The ports of `dev`, which the picture shows.
const PORT: u16 = 7400;
const KINDS: [(u16, &str); 3] = [(0, "clients"), (1, "peers"), (2, "http")];

const LINE: usize = 17;
const CHARACTER: f32 = 7.2;
const GAP: usize = 8;
const WIDTH: usize = 1000;
/// How long the whole picture is shown before it is played, and each step then.
const WHOLE_SECONDS: f32 = 5.0;
const STEP_SECONDS: f32 = 1.4;

/// A terminal, and what appears in it.
struct Pane {
    title: &'static str,
    lines: Vec<Line>,
}

struct Line {
    /// The step of the story in which it appears.
    step: usize,
    is_typed: bool,
    text: String,
}

/// The panes from left to right and from top to bottom.
struct Story {
    cell: Pane,
    alice: Pane,
    bob: Pane,
    watch: Pane,
    desk: Pane,
    step: usize,
    /// The fences of alice and bob.
    fences: Vec<String>,
    /// Each address of the cell, and the one that the picture shows instead.
    addresses: Vec<(String, String)>,
}

#[derive(Clone, Copy)]
enum At {
    Cell,
    Alice,
    Bob,
    Watch,
    Desk,
}

impl Story {
    fn new() -> Self {
        let pane = |title| Pane { title, lines: Vec::new() };
        Self {
            cell: pane("the cell"),
            alice: pane("terminal 1"),
            bob: pane("terminal 2"),
            watch: pane("terminal 3"),
            desk: pane("terminal 4"),
            step: 0,
            fences: Vec::new(),
            addresses: Vec::new(),
        }
    }

    fn push(&mut self, at: At, is_typed: bool, text: &str) {
        let pane = match at {
            At::Cell => &mut self.cell,
            At::Alice => &mut self.alice,
            At::Bob => &mut self.bob,
            At::Watch => &mut self.watch,
            At::Desk => &mut self.desk,
        };
        pane.lines.push(Line { step: self.step, is_typed, text: text.to_owned() });
    }

    /// The next step: a command is typed.
    fn types(&mut self, at: At, command: &str) {
        self.step += 1;
        self.push(at, true, command);
    }

    fn shows(&mut self, at: At, text: &str) {
        text.lines().for_each(|line| self.push(at, false, line));
    }
}

/// The commands of the README, and what they print.
fn play() -> Story {
    let mut story = Story::new();
    story.types(At::Cell, "paxoslease dev --processes");
    let cell = Cell::with(&["--processes"]);
    for (id, (offset, kind)) in (1..=3).flat_map(|id| KINDS.map(|kind| (id, kind))) {
        let usual = format!("127.0.0.1:{}", PORT + 10 * (id - 1) + offset);
        story.addresses.push((cell.port(usize::from(id), kind), usual));
    }
    let summary = cell.process.stderr.until(|line| line.starts_with("Ctrl-C stops"));
    let nodes = summary.iter().position(|line| line.starts_with("What to try")).expect("is there");
    story.shows(At::Cell, &summary[..nodes].join("\n"));
    story.shows(At::Cell, "…\nCtrl-C stops the cell.");

    story.types(At::Watch, "paxoslease watch demo");
    let watch = Process::run(cell.command(&["watch", "demo"]));
    story.shows(At::Watch, &watch.stderr.line());

    let work = "echo fence $PAXOSLEASE_FENCE; sleep 60";
    let lock = |holder| {
        let options = ["lock", "demo", "--ttl", "3s", "--holder", holder, "--", "sh", "-c", work];
        Process::run(cell.command(&options))
    };
    let typed =
        |holder| format!("paxoslease lock demo --ttl 3s --holder {holder} -- sh -c '{work}'");
    story.types(At::Alice, &typed("alice"));
    let alice = lock("alice");
    let fence = alice.stdout.line();
    story.shows(At::Alice, &fence);
    story.fences.push(fence.replace("fence ", ""));
    story.shows(At::Watch, &watch.stdout.line());

    story.types(At::Bob, &typed("bob"));
    let bob = lock("bob");
    story.shows(At::Bob, &bob.stderr.line());

    look(&mut story, &cell, "get demo");
    story.types(At::Desk, &format!("kill -9 {}   # node 1", cell.described["nodes"][0]["pid"]));
    cell.kill(1);
    let ended = cell.process.stderr.until(|line| line.contains(" serve "));
    let ended = ended.join("\n").replace(BINARY, "paxoslease");
    let (ended, _) = ended.split_once(" --data-dir").expect("it has a folder");
    for _ in 0..2 {
        story.shows(At::Watch, &watch.stderr.line());
    }
    story.shows(At::Watch, &watch.stdout.line());
    story.shows(At::Cell, "");
    story.shows(At::Cell, &format!("{ended} …"));

    look(&mut story, &cell, "status");
    look(&mut story, &cell, "get demo");
    story.types(At::Desk, &format!("kill -9 {}   # alice", alice.id()));
    alice.signal(Signal::KILL);
    let fence = bob.stdout.line();
    story.shows(At::Alice, "Killed");
    story.shows(At::Bob, &fence);
    story.fences.push(fence.replace("fence ", ""));
    let held = watch.stdout.until(|line| line.ends_with("bob"));
    // Before it, the watch may tell how the lease of alice ended.
    story.shows(At::Watch, held.last().expect("there is one"));
    look(&mut story, &cell, "get demo");
    bob.signal(Signal::TERM);
    bob.end();
    story
}

/// Shows a command at the desk once the nodes know what happened.
fn look(story: &mut Story, cell: &Cell, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let shown = loop {
        let shown = TestTerminal::run(cell, &words).rest();
        let is_late = shown.contains("down: it closed") || !shown.contains("waits at node");
        if command != "status" || !is_late {
            break shown;
        }
    };
    story.types(At::Desk, &format!("paxoslease {command}"));
    story.shows(At::Desk, &narrowed(&shown));
}

/// The table of `status` without its last columns, for which a pane has no room. The ports of the
/// picture have a digit less than those of the test.
fn narrowed(shown: &str) -> String {
    let header = shown.lines().find(|line| line.starts_with("NODE "));
    let Some(end) = header.and_then(|line| line.find("ACQUIRED/S")) else {
        return shown.to_owned();
    };
    let is_row = |line: &str| line.starts_with("NODE ") || line.get(1..3) == Some("  ");
    let narrow = |line: &str| match line.char_indices().nth(end) {
        Some((at, _)) if is_row(line) => format!("{}…", &line[..at].replacen("WHERE ", "WHERE", 1)),
        _ => line.to_owned(),
    };
    shown.lines().map(narrow).collect::<Vec<_>>().join("\n")
}

impl Story {
    fn draw(&self) -> String {
        let Self { cell, alice, bob, watch, desk, .. } = self;
        let half = (WIDTH - 3 * GAP) / 2;
        let mut body = String::new();
        let mut y = GAP;
        y += self.pane(&mut body, cell, GAP, y, WIDTH - 2 * GAP, 0) + GAP;
        let top = y;
        for pane in [alice, bob, watch] {
            y += self.pane(&mut body, pane, GAP, y, half, 0) + GAP;
        }
        let desk = self.pane(&mut body, desk, 2 * GAP + half, top, half, y - top - GAP);
        y = y.max(top + desk + GAP);
        let note = "PAXOSLEASE_ENDPOINTS=127.0.0.1:7400,127.0.0.1:7410,127.0.0.1:7420";
        let _ = writeln!(body, "<text class=\"note\" x=\"{GAP}\" y=\"{}\">{note}</text>", y + 12);
        let height = y + 24;
        let mut style = include_str!("picture.css").to_owned();
        let all = WHOLE_SECONDS + STEP_SECONDS * (self.step + 1) as f32;
        style += "@media (prefers-reduced-motion:no-preference){\n";
        let begin = 100.0 * WHOLE_SECONDS / all;
        for step in 1..=self.step {
            let at = begin + 100.0 * STEP_SECONDS * step as f32 / all;
            let _ = writeln!(
                style,
                ".t{step}{{animation:k{step} {all:.1}s step-end infinite}}@keyframes k{step}\
                 {{0%{{opacity:1}}{begin:.2}%{{opacity:0}}{at:.2}%,100%{{opacity:1}}}}"
            );
        }
        style += "}\n";
        let title = "A lease outlives a node, and then its holder";
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" xml:space=\"preserve\">\n<title>{title}</title>\n\
             <!-- Drawn by the test of the picture; do not edit. -->\n<style>\n{style}</style>\n\
             <rect class=\"page\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"10\"/>\n{body}</svg>\n",
            WIDTH - 1,
            height - 1,
        )
    }

    /// Draws a pane, at least as high as `least`. Returns its height.
    fn pane(
        &self,
        body: &mut String,
        pane: &Pane,
        x: usize,
        y: usize,
        width: usize,
        least: usize,
    ) -> usize {
        let columns = ((width - 22) as f32 / CHARACTER) as usize;
        let mut lines = String::new();
        let mut count = 0;
        for line in &pane.lines {
            for (part, text) in
                wrapped(&line.text, columns - 2 * usize::from(line.is_typed)).iter().enumerate()
            {
                count += 1;
                let text = self.coloured(text);
                let text = match (line.is_typed, part) {
                    (false, _) => text,
                    (true, part) => {
                        let prompt = if part == 0 { "$ " } else { "&gt; " };
                        format!(
                            "<tspan class=\"ps\">{prompt}</tspan><tspan class=\"in\">{text}</tspan>"
                        )
                    }
                };
                let (x, y, step) = (x + 11, y + 26 + LINE * count, line.step);
                let _ =
                    writeln!(lines, "<text class=\"t{step}\" x=\"{x}\" y=\"{y}\">{text}</text>");
            }
        }
        let height = (26 + LINE * count + 11).max(least);
        let (middle, bar, base) = (x + width / 2, y + 13, y + 17);
        let _ = writeln!(
            body,
            "<rect class=\"pane\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"7\"/>\
             <path class=\"rule\" d=\"M{x} {}h{width}\"/>",
            y + 26
        );
        for (place, colour) in ["#ff5f57", "#febc2e", "#28c840"].iter().enumerate() {
            let x = x + 15 + 15 * place;
            let _ = write!(body, "<circle cx=\"{x}\" cy=\"{bar}\" r=\"4.5\" fill=\"{colour}\"/>");
        }
        let title = pane.title;
        let _ = writeln!(body, "<text class=\"bar\" x=\"{middle}\" y=\"{base}\">{title}</text>");
        *body += &lines;
        height
    }

    /// Escaped, and with colours for the fences.
    fn coloured(&self, text: &str) -> String {
        let mut text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        for (number, fence) in self.fences.iter().enumerate() {
            text = text.replace(fence, &format!("<tspan class=\"f{number}\">{fence}</tspan>"));
        }
        text
    }
}

/// The text in lines of at most this many characters, broken at spaces.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.chars().count() > columns {
        let end = rest.char_indices().nth(columns).map_or(rest.len(), |(at, _)| at);
        let cut = rest[..end].trim_end().rfind(' ').unwrap_or(end);
        lines.push(rest[..cut].to_owned());
        rest = rest[cut..].trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

/// The words of a picture, with `#` for numbers, so that two runs have the same.
fn words(picture: &str) -> String {
    let (_, body) = picture.split_once("</style>").expect("a picture");
    let mut text = String::new();
    let mut is_tag = false;
    for character in body.chars() {
        match character {
            '<' => is_tag = true,
            '>' => is_tag = false,
            _ if is_tag => {}
            digit if digit.is_ascii_digit() => {
                if !text.ends_with(['#', '.']) {
                    text.push('#');
                }
            }
            '.' if text.ends_with('#') => {}
            other => text.push(other),
        }
    }
    // A name of a cell has letters among its digits, and spans have several units.
    let words = text.split_whitespace().map(|word| match word {
        word if word.starts_with("dev-") => "dev-#".to_owned(),
        "ms" | "µs" => "s".to_owned(),
        word => word.replace("µs", "s").replace("ms", "s"),
    });
    words.filter(|word| word != "&gt;").collect::<Vec<_>>().join(" ")
}

#[test]
fn the_picture_shows_what_the_program_prints() {
    let story = play();
    let mut drawn = story.draw();
    for (address, usual) in &story.addresses {
        drawn = drawn.replace(address, usual);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PICTURE);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        return std::fs::write(path, drawn).expect("can be written");
    }
    let picture = std::fs::read_to_string(path).expect("a picture");
    assert_eq!(
        words(&picture),
        words(&drawn),
        "{PICTURE} shows another program; draw it with UPDATE_TRANSCRIPTS=1, and look at it"
    );
}
