//! Hex dumps: offsets, hexadecimal and printable characters.

use std::fmt::Write;

/// Bytes of one line.
const LINE: usize = 16;
/// Most bytes shown.
const SHOWN_MAX: usize = 512;

/// Renders the first bytes, 16 per line. Only printable ASCII is shown as text, so that bytes cannot control the
/// terminal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (number, line) in bytes[..bytes.len().min(SHOWN_MAX)].chunks(LINE).enumerate() {
        let mut pairs = String::new();
        let mut text = String::new();
        for byte in line {
            write!(pairs, "{byte:02x} ").expect("writing to a String cannot fail");
            let printable = byte.is_ascii_graphic() || *byte == b' ';
            text.push(if printable { char::from(*byte) } else { '.' });
        }
        writeln!(out, "{:08x}  {pairs:48} {text}", number * LINE)
            .expect("writing to a String cannot fail");
    }
    if bytes.len() > SHOWN_MAX {
        let more = bytes.len() - SHOWN_MAX;
        writeln!(out, "… and {more} more; --json prints all of them in Base64")
            .expect("writing to a String cannot fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_hexadecimal_and_as_text() {
        let shown = hex(b"\0\0\0\0\x07{\"id\":\"m\x1b[2J\"}\xff");
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "00000000  00 00 00 00 07 7b 22 69 64 22 3a 22 6d 1b 5b 32  .....{\"id\":\"m.[2"
        );
        assert!(lines[1].starts_with("00000010  4a 22 7d ff ") && lines[1].ends_with(" J\"}."));
        assert_eq!(hex(b""), "");
    }

    #[test]
    fn a_long_value_is_cut_with_a_note() {
        let shown = hex(&[b'x'; SHOWN_MAX + 9]);
        assert_eq!(shown.lines().count(), SHOWN_MAX / LINE + 1);
        assert!(shown.contains("… and 9 more"));
    }
}
