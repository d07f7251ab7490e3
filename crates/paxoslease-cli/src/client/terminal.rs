//! The terminal, if there is one: who may read from it.
//!
//! A command in a group of its own may not, until its group is the terminal's foreground group.
//! That is left as it is until the command tries: so `lock .. -- make | less` leaves the keyboard
//! to `less`, and `lock .. -- vi` gets it. A shell does the same for its jobs, only at once.

use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal of this session.
pub(crate) struct Terminal(Option<OwnedFd>);

impl Terminal {
    pub(crate) fn open() -> Self {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        Self(open("/dev/tty", flags, Mode::empty()).ok())
    }

    /// Whether `group` may read.
    fn belongs_to(&self, group: Pid) -> bool {
        self.0.as_ref().is_some_and(|terminal| tcgetpgrp(terminal) == Ok(group))
    }

    /// Lets `group` read if this process may; says whether it may now.
    pub(crate) fn lend(&self, group: Pid) -> bool {
        if self.belongs_to(getpgrp()) {
            self.give(group);
        }
        self.belongs_to(group)
    }

    /// Undoes that, if it is still so; says whether it was.
    pub(crate) fn take_back(&self, group: Pid) -> bool {
        let is_lent = self.belongs_to(group);
        if is_lent {
            self.give(getpgrp());
        }
        is_lent
    }

    fn give(&self, group: Pid) {
        let Some(terminal) = &self.0 else { return };
        // Whoever is not in the foreground and does this is stopped, unless it blocks the signal.
        let stop = SigSet::from(Signal::SIGTTOU);
        let was_blocked = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        // The terminal may have hung up: nobody reads from it then.
        let _hung_up = tcsetpgrp(terminal, group);
        if let Ok(mask) = was_blocked {
            let _same = mask.thread_set_mask();
        }
    }
}
