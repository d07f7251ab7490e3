//! Terminals with a shell in each, and what was printed in them when.
//!
//! `script` makes the terminals; one channel brings what they print, so that whoever waits for a
//! line also notes down all others. There is no emulation: a line is what is left in it when it
//! ends, and what a program draws and wipes again, such as a spinner, is not noted.

use std::io::{Read, Write};
use std::mem::take;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Whatever takes longer than this will not happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A terminal, by its place on the stage.
#[derive(Clone, Copy)]
pub(super) struct Pane(pub(super) usize);

/// What stood in a terminal, and when it was complete.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) at: Duration,
    pub(super) text: String,
}

/// All the terminals.
pub(super) struct Stage {
    began_at: Instant,
    terminals: Vec<Terminal>,
    printed: Receiver<(usize, Duration, Vec<u8>)>,
}

struct Terminal {
    script: Child,
    keyboard: ChildStdin,
    screen: Screen,
}

/// What a terminal showed so far.
#[derive(Default)]
struct Screen {
    lines: Vec<Line>,
    /// The lines before these were there before the last was typed.
    seen: usize,
    unfinished: Vec<u8>,
}

impl Stage {
    /// `count` shells that find our binary in `folder` and know nothing of this machine otherwise.
    #[expect(clippy::disallowed_methods, reason = "a recording is of real time")]
    pub(super) fn open(
        count: usize,
        folder: &Path,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let began_at = Instant::now();
        let (sender, printed) = channel();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", folder.display());
        let mut terminals = Vec::with_capacity(count);
        for place in 0..count {
            let mut script = Command::new("script")
                .args(["--quiet", "--flush", "--command", "sh -i", "/dev/null"])
                .env_clear()
                .env("PATH", &path)
                .envs([("PS1", "$ "), ("PS2", "> "), ("TERM", "dumb"), ("LC_ALL", "C.UTF-8")])
                .envs(environment.iter().copied())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot start `script`, which comes with util-linux")?;
            let keyboard = script.stdin.take().context("its stdin is piped")?;
            let output = script.stdout.take().context("its stdout is piped")?;
            let sender = sender.clone();
            std::thread::spawn(move || note(output, place, began_at, &sender));
            terminals.push(Terminal { script, keyboard, screen: Screen::default() });
        }
        Ok(Self { began_at, terminals, printed })
    }

    /// Waits for the prompt, types a line and presses Enter.
    pub(super) fn type_line(&mut self, pane: Pane, line: &str) -> anyhow::Result<()> {
        let what = || format!("a prompt to type `{line}` at");
        self.until(what, |stage| {
            let screen = &stage.terminals[pane.0].screen;
            matches!(plain(&screen.unfinished).as_str(), "$ " | "> ").then_some(())
        })?;
        eprintln!("[{}] {line}", pane.0 + 1);
        let Terminal { keyboard, screen, .. } = &mut self.terminals[pane.0];
        screen.seen = screen.lines.len();
        keyboard.write_all(format!("{line}\n").as_bytes()).context("the terminal is gone")?;
        // Its echo, or else the old prompt would be taken for the next.
        self.line(pane, |echo| echo.ends_with(line)).map(drop)
    }

    /// Waits for a line since the last that was typed there.
    pub(super) fn line(
        &mut self,
        pane: Pane,
        is_it: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        self.until(
            || format!("what was to come in [{}]", pane.0 + 1),
            |stage| {
                let screen = &stage.terminals[pane.0].screen;
                let mut lines = screen.lines[screen.seen..].iter();
                lines.find(|line| is_it(&line.text)).map(|line| line.text.clone())
            },
        )
    }

    /// What runs in the foreground of a terminal: `script` started a shell, and that a program.
    pub(super) fn process(&self, pane: Pane) -> anyhow::Result<u32> {
        let child = |process: u32| -> anyhow::Result<u32> {
            let path = format!("/proc/{process}/task/{process}/children");
            let children = std::fs::read_to_string(&path).with_context(|| path.clone())?;
            children.trim().parse().with_context(|| format!("{path}: not one but `{children}`"))
        };
        child(child(self.terminals[pane.0].script.id())?)
    }

    /// Lets time pass, and notes what happens.
    pub(super) fn pause(&mut self, pause: Duration) -> anyhow::Result<()> {
        let end_at = self.began_at.elapsed() + pause;
        while self.note_until(end_at)? {}
        Ok(())
    }

    /// What stood in each terminal. Everything that runs in them is stopped.
    pub(super) fn close(mut self) -> Vec<Vec<Line>> {
        self.terminals.iter_mut().map(|terminal| take(&mut terminal.screen.lines)).collect()
    }

    fn until<T>(
        &mut self,
        what: impl Fn() -> String,
        mut found: impl FnMut(&Self) -> Option<T>,
    ) -> anyhow::Result<T> {
        let end_at = self.began_at.elapsed() + PATIENCE;
        loop {
            if let Some(found) = found(self) {
                return Ok(found);
            }
            if !self.note_until(end_at)? {
                let lines = self.terminals.iter().flat_map(|terminal| &terminal.screen.lines);
                let lines: Vec<&str> = lines.map(|line| line.text.as_str()).collect();
                bail!("no sign of {} in {PATIENCE:?}; there was\n{}", what(), lines.join("\n"));
            }
        }
    }

    /// Waits for something to be printed anywhere; `false` if nothing was until `end_at`.
    fn note_until(&mut self, end_at: Duration) -> anyhow::Result<bool> {
        let left = end_at.saturating_sub(self.began_at.elapsed());
        match self.printed.recv_timeout(left) {
            Ok((place, at, bytes)) => self.terminals[place].screen.note(at, &bytes),
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => bail!("all terminals are gone"),
        }
        Ok(!left.is_zero())
    }
}

impl Screen {
    fn note(&mut self, at: Duration, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.lines.push(Line { at, text: plain(&self.unfinished) });
                self.unfinished.clear();
            } else {
                self.unfinished.push(byte);
            }
        }
    }
}

/// Ctrl-C for what runs and `exit` for the shell; whatever minds neither loses its terminal.
impl Drop for Stage {
    #[expect(clippy::disallowed_methods, reason = "there is no event to wait for with a bound")]
    fn drop(&mut self) {
        // The cell is the first and goes last, so that the others can give back what they hold.
        for terminal in self.terminals.iter_mut().rev() {
            let _ = terminal.keyboard.write_all(b"\x03");
            std::thread::sleep(Duration::from_millis(300));
            let _ = terminal.keyboard.write_all(b"exit\n");
            let end_at = self.began_at.elapsed() + Duration::from_secs(5);
            while matches!(terminal.script.try_wait(), Ok(None)) {
                if self.began_at.elapsed() > end_at {
                    let _ = terminal.script.kill();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn note(
    mut output: impl Read,
    place: usize,
    began_at: Instant,
    sender: &Sender<(usize, Duration, Vec<u8>)>,
) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = output.read(&mut buffer) {
        if sender.send((place, began_at.elapsed(), buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

/// What is left to see of a line: no colours, and nothing before the cursor last went back.
fn plain(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut parts = line.split("\x1b[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c)).map_or(part.len(), |end| end + 1);
        text += &part[end..];
    }
    text.replace(char::is_control, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_to_be_seen_is_a_line() {
        assert_eq!(plain(b"ready\r"), "ready");
        assert_eq!(plain(b"\xe2\xa0\x81 0s, waiting   \r\x1b[2Kmy turn\r"), "my turn");
        assert_eq!(plain(b"\x1b[1;32mok\x1b[0m \x07done"), "ok done");
    }

    #[test]
    fn a_line_is_as_old_as_its_end() {
        let mut screen = Screen::default();
        screen.note(Duration::from_secs(1), b"one\r\nt");
        screen.note(Duration::from_secs(2), b"wo\r\n$ ");
        let lines: Vec<_> =
            screen.lines.iter().map(|line| (line.at.as_secs(), &*line.text)).collect();
        assert_eq!(lines, [(1, "one"), (2, "two")]);
        assert_eq!(screen.unfinished, b"$ ");
    }
}
