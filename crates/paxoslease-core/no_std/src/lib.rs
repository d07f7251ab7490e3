//! Defines what std would define. If core, codec or one of their dependencies linked std, the
//! compiler would find two panic handlers and refuse to build this.

#![no_std]

use core::panic::PanicInfo;

pub use {paxoslease_core, paxoslease_wire};

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
