//! CRC-32 (IEEE 802.3, reflected), one byte at a time: files are small and rarely read. The tests
//! of records and snapshots compute it in another way.

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The checksum of the bytes so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc(u32);

impl Crc {
    pub(crate) const fn new() -> Self {
        Self(u32::MAX)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 =
            bytes.iter().fold(self.0, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ *byte)]);
    }

    pub(crate) const fn value(self) -> u32 {
        !self.0
    }

    pub(crate) fn of(bytes: &[u8]) -> u32 {
        let mut crc = Self::new();
        crc.update(bytes);
        crc.value()
    }
}
