//! The terminal, if there is one: which process group may read from it.
//!
//! A command in a group of its own may not read until its group is the terminal's foreground group.
//! This module changes the group only when the command tries to read: so `lock .. -- make | less`
//! leaves the keyboard to `less`, and `lock .. -- vi` gets it. A shell does the same for its jobs,
//! but at once.

use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

pub(crate) struct Terminal(Option<OwnedFd>);

impl Terminal {
    pub(crate) fn open() -> Self {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        Self(open("/dev/tty", flags, Mode::empty()).ok())
    }

    /// Whether `group` is in the foreground.
    fn belongs_to(&self, group: Pid) -> bool {
        self.0.as_ref().is_some_and(|terminal| tcgetpgrp(terminal) == Ok(group))
    }

    /// Brings `group` to the foreground if this process is there. Returns whether `group` is there
    /// now.
    pub(crate) fn lend(&self, group: Pid) -> bool {
        if self.belongs_to(getpgrp()) {
            self.give(group);
        }
        self.belongs_to(group)
    }

    /// Undoes [`Self::lend`], if `group` is still in the foreground. Returns whether it was.
    pub(crate) fn take_back(&self, group: Pid) -> bool {
        let is_lent = self.belongs_to(group);
        if is_lent {
            self.give(getpgrp());
        }
        is_lent
    }

    fn give(&self, group: Pid) {
        let Some(terminal) = &self.0 else { return };
        // The system stops a background process that does this, unless it blocks the signal.
        let stop = SigSet::from(Signal::SIGTTOU);
        let was_blocked = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        // The terminal may have hung up. Then no process reads from it.
        let _hung_up = tcsetpgrp(terminal, group);
        if let Ok(mask) = was_blocked {
            let _same = mask.thread_set_mask();
        }
    }
}
