//! The checksum of all files, CRC-32C. The tests compute it in another way.

use core::fmt;

use ::crc::{CRC_32_ISCSI, Digest, Table};

static CRC: ::crc::Crc<u32, Table<16>> = ::crc::Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// The checksum of the bytes so far.
pub(crate) struct Crc(Digest<'static, u32, Table<16>>);

impl Crc {
    pub(crate) fn new() -> Self {
        Self(CRC.digest())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn value(self) -> u32 {
        self.0.finalize()
    }

    pub(crate) fn of(bytes: &[u8]) -> u32 {
        CRC.checksum(bytes)
    }
}

impl fmt::Debug for Crc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crc")
    }
}
