//! A recording as an SVG: terminals side by side, in which the lines appear when they did.
//!
//! The animation begins with everything visible and only hides what is yet to come, so the picture
//! is complete where nothing moves: in print, for those who asked for less motion, in viewers that
//! know no CSS. There is no script, and no font beyond what the reader has.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use crate::recording::stage::Line;

const WIDTH: usize = 1000;
const MARGIN: usize = 12;
const ROW: usize = 17;
const BAR: usize = 26;
const PADDING: usize = 11;
/// Between terminals.
const GAP: usize = 8;
/// One terminal over the whole width, and two columns of them below.
const WIDE: Column = Column { x: MARGIN, letters: 132, width: WIDTH - 2 * MARGIN };
const LEFT: Column = Column { x: MARGIN, letters: 64, width: (WIDE.width - GAP) / 2 };
const RIGHT: Column = Column { x: MARGIN + LEFT.width + GAP, ..LEFT };
/// Letters that the time takes at the end of a row.
const STAMP: usize = 6;
/// Rows of prose that one line may take.
const ROWS_MAX: usize = 3;

/// In tenths of a second: times are shown no finer, so they are not told apart any finer.
type Tenths = u32;
const WAIT_MAX: Tenths = 20;
/// How long all stays visible before it begins again.
const REST: Tenths = 50;
/// What comes this soon after the line before belongs to it.
const AT_ONCE: Tenths = 2;

struct Column {
    x: usize,
    letters: usize,
    width: usize,
}

/// A terminal's title and what stands in it.
pub(super) type Terminal<'a> = (&'a str, &'a [Line]);

struct Pane<'a> {
    title: &'a str,
    rows: Vec<Row>,
}

struct Row {
    at: Tenths,
    is_stamped: bool,
    text: String,
}

/// When everything happened, and when it is shown: waits are no longer than [`WAIT_MAX`].
struct Pace {
    moments: Vec<Moment>,
}

struct Moment {
    at: Tenths,
    shown_at: Tenths,
    is_hastened: bool,
}

/// The picture of one terminal above two columns of them, and a note below.
pub(super) fn draw(
    top: Terminal<'_>,
    left: &[Terminal<'_>],
    right: &[Terminal<'_>],
    note: &str,
) -> String {
    let top = &[top];
    let lines = || top.iter().chain(left).chain(right).flat_map(|(_, lines)| *lines);
    let began_at = lines().map(|line| line.at).min().unwrap_or_default();
    let mut drawing = Drawing {
        pace: Pace::of(lines().map(|line| tenths(line.at - began_at)).collect()),
        fences: lines().flat_map(|line| fences(&line.text)).collect(),
        out: String::new(),
    };
    let [top, left, right] = [(top.as_slice(), &WIDE), (left, &LEFT), (right, &RIGHT)]
        .map(|(terminals, column)| lay_out(terminals, column, began_at));
    let middle = MARGIN + height(&top);
    let bottom = middle + height(&left).max(height(&right));
    drawing.column(&WIDE, &top, MARGIN, middle);
    drawing.column(&LEFT, &left, middle, bottom);
    drawing.column(&RIGHT, &right, middle, bottom);
    drawing.finish(bottom, note)
}

fn lay_out<'a>(terminals: &[Terminal<'a>], column: &Column, began_at: Duration) -> Vec<Pane<'a>> {
    let pane = |&(title, lines): &Terminal<'a>| Pane { title, rows: rows(lines, began_at, column) };
    terminals.iter().map(pane).collect()
}

fn height(panes: &[Pane<'_>]) -> usize {
    panes.iter().map(|pane| BAR + pane.rows.len() * ROW + PADDING + GAP).sum()
}

struct Drawing<'a> {
    pace: Pace,
    /// In rising order, which is that of the tenures.
    fences: BTreeSet<&'a str>,
    out: String,
}

impl Drawing<'_> {
    /// Terminals below each other; the last is as high as there is room.
    fn column(&mut self, column: &Column, panes: &[Pane<'_>], mut top: usize, bottom: usize) {
        let spare = bottom - top - height(panes);
        for (place, pane) in panes.iter().enumerate() {
            let stretch = if place + 1 == panes.len() { spare } else { 0 };
            let high = BAR + pane.rows.len() * ROW + PADDING + stretch;
            self.window(column, top, high, pane.title);
            for (place, row) in pane.rows.iter().enumerate() {
                self.row(column, top + BAR + (place + 1) * ROW, row);
            }
            top += high + GAP;
        }
    }

    fn window(&mut self, column: &Column, top: usize, high: usize, title: &str) {
        let Column { x, width, .. } = column;
        let _ = writeln!(
            self.out,
            "<rect class=\"pane\" x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{high}\" \
             rx=\"7\"/><path class=\"rule\" d=\"M{x} {}h{width}\"/>",
            top + BAR,
        );
        let middle = top + BAR / 2;
        for (place, light) in ["#ff5f57", "#febc2e", "#28c840"].into_iter().enumerate() {
            let x = x + 15 + 15 * place;
            let _ =
                write!(self.out, "<circle cx=\"{x}\" cy=\"{middle}\" r=\"4.5\" fill=\"{light}\"/>");
        }
        let (x, y, title) = (x + width / 2, middle + 4, escaped(title));
        let _ = writeln!(self.out, "<text class=\"bar\" x=\"{x}\" y=\"{y}\">{title}</text>");
    }

    fn row(&mut self, column: &Column, y: usize, row: &Row) {
        let (at, x, text) = (row.at, column.x + PADDING, self.coloured(&row.text));
        let _ = write!(self.out, "<g class=\"t{at}\"><text x=\"{x}\" y=\"{y}\">{text}</text>");
        if row.is_stamped {
            let mark = if self.pace.is_hastened(at) { "… " } else { "" };
            let (x, at) = (column.x + column.width - PADDING, format!("{}.{}s", at / 10, at % 10));
            let _ =
                write!(self.out, "<text class=\"at end\" x=\"{x}\" y=\"{y}\">{mark}{at}</text>");
        }
        self.out.push_str("</g>\n");
    }

    /// A prompt with what was typed at it, or a line of output with the colours of its fences.
    fn coloured(&self, text: &str) -> String {
        let span = |class: &str, text: &str| format!("<tspan class=\"{class}\">{text}</tspan>");
        if let Some((prompt, typed)) = text.split_at_checked(2)
            && ["$ ", "> "].contains(&prompt)
        {
            return span("ps", &escaped(prompt)) + &span("in", &escaped(typed));
        }
        self.fences
            .iter()
            .zip(["f0", "f1"].into_iter().cycle())
            .fold(escaped(text), |text, (fence, class)| text.replace(fence, &span(class, fence)))
    }

    fn finish(self, bottom: usize, note: &str) -> String {
        let Self { pace, out, .. } = self;
        let (high, y) = (bottom + 22, bottom + 8);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{high}\" \
             viewBox=\"0 0 {WIDTH} {high}\" role=\"img\" xml:space=\"preserve\">\n\
             <title>A lease outlives a node, and then its holder</title>\n\
             <!-- Written by `cargo xtask recording`; do not edit. -->\n<style>\n{}</style>\n\
             <rect class=\"page\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"10\"/>\n{out}\
             <text class=\"note\" x=\"{MARGIN}\" y=\"{y}\">{}</text>\n\
             <text class=\"note end\" x=\"{}\" y=\"{y}\">… text or time left out\
             </text>\n</svg>\n",
            style(&pace),
            WIDTH - 1,
            high - 1,
            escaped(note),
            WIDTH - MARGIN,
        )
    }
}

/// Lines in the width of a column. Prose wraps, but what is laid out in columns is cut: a table
/// that wraps is none.
fn rows(lines: &[Line], began_at: Duration, column: &Column) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut before = None;
    for line in lines {
        let at = tenths(line.at - began_at);
        let is_stamped = before.is_none_or(|before| at > before + AT_ONCE);
        before = Some(at);
        let first = column.letters - if is_stamped { STAMP } else { 0 };
        let is_laid_out = line.text.starts_with(' ') || line.text.contains("  ");
        let rows_max = if is_laid_out { 1 } else { ROWS_MAX };
        let parts = wrapped(&line.text, first, column.letters, rows_max);
        rows.extend(parts.into_iter().enumerate().map(|(place, text)| Row {
            at,
            is_stamped: is_stamped && place == 0,
            text,
        }));
    }
    rows
}

/// `text` in at most `rows_max` rows, with a mark where something is left out.
fn wrapped(text: &str, first: usize, others: usize, rows_max: usize) -> Vec<String> {
    let mut rows = Vec::new();
    let mut rest: Vec<char> = text.trim_end().chars().collect();
    let mut width = first;
    while rest.len() > width {
        let is_last = rows.len() + 1 == rows_max;
        let break_at = rest[..=width].iter().rposition(|&c| c == ' ').filter(|&at| at > 0);
        let end = match break_at {
            Some(at) if !is_last => at,
            _ => width - usize::from(is_last),
        };
        let row: String = rest.drain(..end).collect();
        if is_last {
            rows.push(row + "…");
            return rows;
        }
        rows.push(row);
        let blank = rest.iter().take_while(|&&c| c == ' ').count();
        rest.drain(..blank);
        width = others;
    }
    rows.push(rest.into_iter().collect());
    rows
}

impl Pace {
    fn of(times: BTreeSet<Tenths>) -> Self {
        let mut moments: Vec<Moment> = Vec::with_capacity(times.len());
        for at in times {
            let (wait, since) = moments.last().map_or((0, 0), |last| (at - last.at, last.shown_at));
            let shown_at = since + wait.min(WAIT_MAX);
            moments.push(Moment { at, shown_at, is_hastened: wait > WAIT_MAX });
        }
        Self { moments }
    }

    fn is_hastened(&self, at: Tenths) -> bool {
        self.moments.iter().any(|moment| moment.at == at && moment.is_hastened)
    }
}

/// Colours and, for each moment, how long its lines stay hidden.
fn style(pace: &Pace) -> String {
    let mut style = "\
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
fill:#c9d1d9;white-space:pre}
.page{fill:#010409;stroke:#30363d}
.pane{fill:#0d1117;stroke:#30363d}
.rule{stroke:#30363d}
.bar{fill:#8b949e;text-anchor:middle}
.note{fill:#8b949e;font-size:11px}
.at{fill:#6e7681;font-size:10px}
.end{text-anchor:end}
.ps{fill:#3fb950}
.in{fill:#ffffff;font-weight:600}
.f0{fill:#79c0ff}
.f1{fill:#ffa657}
"
    .to_owned();
    let length = REST + pace.moments.last().map_or(0, |moment| moment.shown_at);
    let percent = |at: Tenths| f64::from(at) * 100.0 / f64::from(length);
    style.push_str("@media (prefers-reduced-motion:no-preference){\n");
    for Moment { at, shown_at, .. } in &pace.moments {
        let _ = writeln!(
            style,
            ".t{at}{{animation:k{at} {}s step-end infinite}}\
             @keyframes k{at}{{0%{{opacity:1}}{:.2}%{{opacity:0}}{:.2}%,100%{{opacity:1}}}}",
            f64::from(length) / 10.0,
            percent(REST),
            percent(REST + shown_at).min(99.99),
        );
    }
    style.push_str("}\n");
    style
}

/// Numbers too long to be anything else; each gets a colour, so that one sees when it changes.
fn fences(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_digit()).filter(|number| number.len() > 12)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn tenths(time: Duration) -> Tenths {
    Tenths::try_from(time.as_millis() / 100).unwrap_or(Tenths::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(millis: u64, text: &str) -> Line {
        Line { at: Duration::from_millis(millis), text: text.to_owned() }
    }

    fn picture(lines: &[Line]) -> String {
        draw(("the cell", lines), &[], &[], "a note")
    }

    /// The times at which lines are shown, in percent of the whole, as the style has them.
    fn shown_at(picture: &str) -> Vec<f64> {
        let parts = picture.split("{opacity:0}").skip(1);
        parts.map(|part| part.split('%').next().expect("a part").parse().expect("one")).collect()
    }

    #[test]
    fn what_was_printed_never_becomes_markup() {
        let picture = picture(&[line(0, "$ a <b> && c"), line(0, "</text><script>&")]);
        assert!(picture.contains("a &lt;b&gt; &amp;&amp; c</tspan>"), "{picture}");
        assert!(picture.contains(">&lt;/text&gt;&lt;script&gt;&amp;</text>"), "{picture}");
        assert!(!picture.contains("<script"), "{picture}");
    }

    #[test]
    fn lines_appear_in_the_order_in_which_they_were_printed() {
        let lines = [line(900, "one"), line(1000, "two"), line(3400, "three")];
        let times = shown_at(&picture(&lines));
        assert_eq!(times.len(), 3);
        assert!(times.is_sorted() && times[0] > 0.0 && times[2] < 100.0, "{times:?}");
        let picture = picture(&lines);
        let places = ["one", "two", "three"].map(|text| picture.find(&format!(">{text}<")));
        assert!(places[0].is_some() && places.is_sorted(), "{places:?}");
    }

    #[test]
    fn without_animation_everything_is_visible() {
        let picture = picture(&[line(0, "one"), line(5000, "two")]);
        let media = picture.find("@media (prefers-reduced-motion:no-preference)");
        assert!(media.is_some() && media < picture.find("opacity"), "{picture}");
        assert!(picture.contains("0%{opacity:1}"), "and with it, to begin with");
    }

    #[test]
    fn a_long_wait_is_shortened_and_marked_with_its_true_time() {
        let pace = Pace::of([0, 15, 115, 120].into());
        let shown: Vec<Tenths> = pace.moments.iter().map(|moment| moment.shown_at).collect();
        assert_eq!(shown, [0, 15, 35, 40]);
        let picture = picture(&[line(0, "one"), line(1500, "two"), line(11500, "three")]);
        assert!(picture.contains(">1.5s</text>") && picture.contains(">… 11.5s</text>"));
    }

    #[test]
    fn no_row_is_wider_than_its_terminal() {
        let prose = "word ".repeat(100);
        let table = format!("1     {}", "x".repeat(200));
        let lines = [line(0, &prose), line(0, &table), line(0, &"y".repeat(150))];
        let rows = rows(&lines, Duration::ZERO, &LEFT);
        let widths: Vec<usize> = rows.iter().map(|row| row.text.chars().count()).collect();
        assert!(widths.iter().all(|&width| width <= LEFT.letters), "{widths:?}");
        assert!(widths[0] <= LEFT.letters - STAMP, "there is room for the time: {widths:?}");
        assert_eq!(rows.len(), ROWS_MAX + 1 + ROWS_MAX);
        // A letter is at most 0.602 of the font's size wide in the fonts of the style.
        for Column { letters, width, .. } in [WIDE, LEFT, RIGHT] {
            assert!(letters * 12 * 602 / 1000 <= width - 2 * PADDING, "{letters}");
        }
    }

    #[test]
    fn prose_wraps_at_words_and_tables_are_cut() {
        assert_eq!(wrapped("one two three", 7, 9, 3), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 8, 9, 3), ["one two", "three"]);
        assert_eq!(wrapped("one two three four", 7, 5, 2), ["one two", "thre…"]);
        assert_eq!(wrapped("1  votes  3ms", 9, 9, 1), ["1  votes…"]);
        assert_eq!(wrapped("fits", 4, 4, 1), ["fits"]);
        assert_eq!(wrapped("", 4, 4, 1), [""]);
    }

    #[test]
    fn a_fence_has_one_colour_wherever_it_stands() {
        let (first, second) = ("1881926052805084161", "1881926052805100546");
        let picture = picture(&[line(0, second), line(0, first), line(1, &format!("x {first}"))]);
        assert_eq!(picture.matches(&format!("<tspan class=\"f0\">{first}</tspan>")).count(), 2);
        assert_eq!(picture.matches(&format!("<tspan class=\"f1\">{second}</tspan>")).count(), 1);
    }
}
