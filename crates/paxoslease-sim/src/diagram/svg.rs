//! Writes SVG as text: shapes with a class each, numbers with one decimal, every text escaped.
//!
//! Knows nothing about leases. `STYLE` defines the look of every class.

use std::fmt::Write as _;

/// The look of every class. Shapes and captions carry the meaning; colour only helps.
const STYLE: &str = "\
text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:14px;fill:#1f2933}\
.halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}\
.title{font-size:22px;font-weight:bold}.caption{font-size:15px;fill:#3e4c59}\
.lane{font-size:16px;font-weight:bold}.small{font-size:12.5px;fill:#52606d}\
.in{font-weight:bold}.note{font-style:italic;fill:#3e4c59}\
.alarm{font-size:15px;font-weight:bold;fill:#b00020}.flag{font-weight:bold;fill:#fff}\
.line{stroke:#1f2933;stroke-width:1.6;fill:none}.down{stroke:#9aa5b1;stroke-dasharray:2 5}\
.eraser{stroke:#fff;stroke-width:4;fill:none}\
.grid{stroke:#e4e7eb;stroke-width:1;fill:none}.gap{fill:#f5f7fa}\
.message{stroke:#3e4c59;stroke-width:1.3;fill:none}.again{stroke-dasharray:6 4}\
.lost{stroke:#9a3412;stroke-width:1.3;fill:none}.cross{stroke:#9a3412;stroke-width:2.2;fill:none}\
.ask{stroke:#7b8794;stroke-width:1;stroke-dasharray:1 3;fill:none}.dot{fill:#1f2933}\
.tick{fill:#1f2933}.bar{stroke:#1f2933;stroke-width:1}.silent{fill:url(#silent);stroke:#7b8794}\
.paused{fill:url(#paused);stroke:#52606d;stroke-width:1.5}.both{fill:url(#both);stroke:#b00020;stroke-width:2}\
.alarm-line{stroke:#b00020;stroke-width:1.6;stroke-dasharray:7 4;fill:none}.alarm-fill{fill:#b00020}\
.t0{fill:#a7d3f5}.t1{fill:#f9cf94}.t2{fill:#b9e3b4}.t3{fill:#e3c1ee}.t4{fill:#f5b9b4}.t5{fill:#c9cfd6}";

const DEFS: &str = "\
<marker id=\"head\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"8\" markerHeight=\"8\" \
orient=\"auto\"><path d=\"M0 1L10 5L0 9z\" fill=\"#3e4c59\"/></marker>\
<pattern id=\"silent\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\">\
<rect width=\"7\" height=\"7\" fill=\"#eceff2\"/><path d=\"M0 7L7 0\" stroke=\"#9aa5b1\"/></pattern>\
<pattern id=\"paused\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<path d=\"M3 0V6\" stroke=\"#52606d\"/></pattern>\
<pattern id=\"both\" width=\"9\" height=\"9\" patternUnits=\"userSpaceOnUse\">\
<path d=\"M-2 2L2 -2M0 9L9 0M7 11L11 7\" stroke=\"#b00020\" stroke-width=\"2\" \
stroke-opacity=\"0.6\"/></pattern>";

/// The number of tenure colours before they repeat. The text in the bar identifies the tenure.
pub const TENURE_COLOURS: usize = 6;

/// A point of the picture.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Pixels from the left.
    pub x: f64,
    /// Pixels from the top.
    pub y: f64,
}

/// Shorthand for a [`Point`].
#[must_use]
pub const fn at(x: f64, y: f64) -> Point {
    Point { x, y }
}

/// The part of a text that is at its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    /// The beginning.
    Start,
    /// The middle.
    Middle,
    /// The end.
    End,
}

/// The approximate width of a text in pixels.
#[must_use]
pub fn width_of(text: &str, size: f64) -> f64 {
    let narrow = |c: char| matches!(c, 'i' | 'j' | 'l' | 'f' | 't' | 'r' | '.' | ',' | ' ' | ':');
    text.chars().map(|c| if narrow(c) { 0.33 } else { 0.58 }).sum::<f64>() * size
}

/// A picture under construction.
#[derive(Debug)]
pub struct Svg {
    out: String,
}

impl Svg {
    /// An empty picture. Screen readers read the title and the description.
    #[must_use]
    pub fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        let mut svg = Self { out: String::with_capacity(1 << 14) };
        svg.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">"
        ));
        svg.put(&format!("<title>{}</title>", escape(title)));
        svg.put(&format!("<desc>{}</desc>", escape(description)));
        svg.put(&format!("<style>{STYLE}</style>"));
        svg.put(&format!("<defs>{DEFS}</defs>"));
        // The picture has its own background, because the page around it may be dark.
        svg.put(&format!("<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>"));
        svg
    }

    /// The complete SVG document.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.put("</svg>");
        self.out
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: Point, to: Point) {
        self.path(class, &format!("M{:.1} {:.1}L{:.1} {:.1}", from.x, from.y, to.x, to.y));
    }

    /// A line with an arrowhead.
    pub fn arrow(&mut self, class: &str, from: Point, to: Point) {
        let Point { x, y } = from;
        self.put(&format!(
            "<path class=\"{class}\" marker-end=\"url(#head)\" d=\"M{x:.1} {y:.1}L{:.1} {:.1}\"/>",
            to.x, to.y
        ));
    }

    /// A cross around a point.
    pub fn cross(&mut self, class: &str, Point { x, y }: Point, r: f64) {
        let (left, right, top, bottom) = (x - r, x + r, y - r, y + r);
        self.path(
            class,
            &format!(
                "M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}"
            ),
        );
    }

    /// A path in SVG's notation.
    pub fn path(&mut self, class: &str, d: &str) {
        self.put(&format!("<path class=\"{class}\" d=\"{d}\"/>"));
    }

    /// Any path with a look of its own, as CSS has it.
    pub fn styled(&mut self, style: &str, d: &str) {
        self.put(&format!("<path style=\"{style}\" d=\"{d}\"/>"));
    }

    /// A disc.
    pub fn dot(&mut self, class: &str, Point { x, y }: Point, r: f64) {
        self.put(&format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\"/>"));
    }

    /// A rectangle between two corners, with a text that appears on hovering.
    pub fn rect(&mut self, class: &str, from: Point, to: Point, hover: &str) {
        let (width, height) = ((to.x - from.x).max(0.5), to.y - from.y);
        self.put(&format!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{}</title></rect>",
            from.x,
            from.y,
            escape(hover)
        ));
    }

    /// A text at a position.
    pub fn text(&mut self, class: &str, Point { x, y }: Point, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.put(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>",
            escape(text)
        ));
    }

    /// A text centred on a position and turned by an angle in degrees.
    pub fn turned(&mut self, class: &str, Point { x, y }: Point, angle: f64, text: &str) {
        self.put(&format!(
            "<text class=\"{class}\" text-anchor=\"middle\" \
             transform=\"translate({x:.1} {y:.1}) rotate({angle:.1})\">{}</text>",
            escape(text)
        ));
    }

    fn put(&mut self, element: &str) {
        writeln!(self.out, "{element}").expect("a String takes every text");
    }
}

/// Escapes a text for XML; characters that XML 1.0 forbids become question marks.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}
