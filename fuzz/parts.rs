//! An input of a fuzz target, cut into parts.
//!
//! Parts are separated by the byte 0xFE, which no UTF-8 text has; the last one is all that is left, so it
//! may be any bytes.

/// The parts of an input, from its beginning.
pub(crate) struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// The next byte; zero at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next bytes up to a separator.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let mut parts = self.0.splitn(2, |byte| *byte == 0xFE);
        let part = parts.next().unwrap_or_default();
        self.0 = parts.next().unwrap_or_default();
        part
    }

    /// The same as text, with a mark for what is none.
    pub(crate) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}
