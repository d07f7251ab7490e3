//! Bars from left to right, each with its name before it and its value behind it, on an axis whose
//! steps are factors. There is no legend: a bar says what it is.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Axis, FONT, GRID, INK, Look, failed};

const WIDTH: i32 = 960;
const BAR_HEIGHT: i32 = 30;
const BAR_STEP: i32 = 42;
const NAME_WIDTH: i32 = 285;
const VALUE_WIDTH: i32 = 190;
const HEAD: i32 = 62;
const FOOT: i32 = 62;

/// One of them.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Before it.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// Behind it.
    pub text: String,
    /// Its colour; filled, or only an outline where lines would be dashed.
    pub look: Look,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// As a file of its own.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn svg(&self) -> anyhow::Result<String> {
        let bottom = HEAD + BAR_STEP * self.bars.len() as i32;
        let mut svg = String::new();
        {
            let size = (WIDTH as u32, (bottom + FOOT) as u32);
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            area.fill(&WHITE).map_err(failed)?;
            let style = |size: u32, horizontal| {
                let font = (FONT, size).into_font().color(&INK);
                font.pos(Pos::new(horizontal, VPos::Center))
            };
            let write = |text: &str, at: (i32, i32), style: TextStyle<'_>| {
                area.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
            };
            write(&self.title, (WIDTH / 2, HEAD / 2 - 4), style(23, HPos::Center))?;
            for tick in &self.x.ticks {
                let x = self.place(*tick);
                let line = PathElement::new([(x, HEAD - 8), (x, bottom)], GRID);
                area.draw(&line).map_err(failed)?;
                write(&(self.x.name)(*tick), (x, bottom + 16), style(16, HPos::Center))?;
            }
            let middle = (NAME_WIDTH + WIDTH - VALUE_WIDTH) / 2;
            write(self.x.label, (middle, bottom + 42), style(17, HPos::Center))?;
            for (bar, top) in self.bars.iter().zip((HEAD..).step_by(BAR_STEP as usize)) {
                let (left, right) = (self.place(self.x.ends().0), self.place(bar.value));
                let corners = [(left, top), (right.max(left + 1), top + BAR_HEIGHT)];
                let paint = bar.look.paint();
                if !bar.look.dashed {
                    area.draw(&Rectangle::new(corners, paint.filled())).map_err(failed)?;
                } else {
                    area.draw(&Rectangle::new(corners, WHITE.filled())).map_err(failed)?;
                    area.draw(&Rectangle::new(corners, paint.mix(0.25).filled()))
                        .map_err(failed)?;
                    area.draw(&Rectangle::new(corners, paint.stroke_width(2))).map_err(failed)?;
                }
                let y = top + BAR_HEIGHT / 2;
                write(&bar.name, (NAME_WIDTH - 12, y), style(18, HPos::Right))?;
                write(&bar.text, (right + 10, y), style(18, HPos::Left))?;
            }
            area.present().map_err(failed)?;
        }
        Ok(svg)
    }

    fn place(&self, value: f64) -> i32 {
        let span = f64::from(WIDTH - VALUE_WIDTH - NAME_WIDTH);
        NAME_WIDTH + (self.x.share(value) * span).round() as i32
    }
}
