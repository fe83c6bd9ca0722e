//! Decimals of any size: the bytes of a two's complement number, and its digits.

/// The longest number; about 154 digits.
const BYTES_MAX: usize = 64;
const DIGITS_MAX: usize = 154;

/// Returns the decimal as text, with `scale` digits after the point.
pub(super) fn to_text(bytes: &[u8], scale: usize) -> Result<String, String> {
    if bytes.len() > BYTES_MAX || scale > DIGITS_MAX {
        return Err(format!("is a decimal of more than {BYTES_MAX} bytes"));
    }
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let magnitude = if negative { negate(bytes) } else { bytes.to_vec() };
    // The digits, the last one first.
    let mut digits: Vec<u8> = Vec::new();
    for byte in magnitude {
        let mut carry = u32::from(byte);
        for digit in &mut digits {
            let next = u32::from(*digit) * 256 + carry;
            *digit = u8::try_from(next % 10).expect("a digit is below 10");
            carry = next / 10;
        }
        while carry > 0 {
            digits.push(u8::try_from(carry % 10).expect("a digit is below 10"));
            carry /= 10;
        }
    }
    digits.resize(digits.len().max(scale + 1), 0);
    let mut text = String::with_capacity(digits.len() + 2);
    if negative {
        text.push('-');
    }
    for (place, digit) in digits.iter().enumerate().rev() {
        text.push(char::from(b'0' + digit));
        if place == scale && scale > 0 {
            text.push('.');
        }
    }
    Ok(text)
}

/// Returns the fewest bytes of a decimal such as `-12.5`.
pub(super) fn to_bytes(text: &str, precision: usize, scale: usize) -> Result<Vec<u8>, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return Err("is not a decimal such as \"12.50\"".to_owned());
    }
    let kept = fraction.trim_end_matches('0');
    if kept.len() > scale {
        return Err(format!("has more than {scale} digits after the point"));
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() + scale > precision.min(DIGITS_MAX) && !(whole.is_empty() && scale <= precision)
    {
        return Err(format!("has more than {precision} digits"));
    }
    let zeros = std::iter::repeat_n(b'0', scale - kept.len());
    let mut magnitude: Vec<u8> = vec![0];
    for digit in whole.bytes().chain(kept.bytes()).chain(zeros) {
        let mut carry = u32::from(digit - b'0');
        for byte in magnitude.iter_mut().rev() {
            let next = u32::from(*byte) * 10 + carry;
            *byte = next.to_le_bytes()[0];
            carry = next >> 8;
        }
        if carry > 0 {
            magnitude.insert(0, carry.to_le_bytes()[0]);
        }
    }
    if magnitude[0] & 0x80 != 0 {
        magnitude.insert(0, 0);
    }
    Ok(if negative { shorten(negate(&magnitude)) } else { shorten(magnitude) })
}

fn negate(bytes: &[u8]) -> Vec<u8> {
    let mut negated: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    for byte in negated.iter_mut().rev() {
        let (next, overflow) = byte.overflowing_add(1);
        *byte = next;
        if !overflow {
            return negated;
        }
    }
    // Only zero, and the lowest number of these bytes, which is its own magnitude without a sign.
    negated
}

/// Removes leading bytes that only repeat the sign.
fn shorten(mut bytes: Vec<u8>) -> Vec<u8> {
    while let [first, second, ..] = bytes[..]
        && ((first == 0 && second & 0x80 == 0) || (first == 0xff && second & 0x80 != 0))
    {
        bytes.remove(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_digits_are_the_same_number() {
        for (bytes, scale, text) in [
            (&[][..], 2, "0.00"),
            (&[0], 0, "0"),
            (&[0x04, 0xd2], 2, "12.34"),
            (&[0xff], 2, "-0.01"),
            (&[0x80], 0, "-128"),
            (&[0x00, 0x80], 0, "128"),
            (&[0x80, 0x00], 1, "-3276.8"),
        ] {
            assert_eq!(to_text(bytes, scale).as_deref(), Ok(text));
            if !bytes.is_empty() {
                assert_eq!(to_bytes(text, 9, scale).as_deref(), Ok(bytes), "{text}");
            }
        }
        for number in [i128::MAX, i128::MIN, -1, 1 << 100] {
            let bytes = number.to_be_bytes();
            assert_eq!(to_text(&bytes, 0), Ok(number.to_string()));
            let again = to_bytes(&number.to_string(), 40, 0).unwrap();
            assert_eq!(to_text(&again, 0), Ok(number.to_string()));
        }
    }

    #[test]
    fn a_decimal_that_would_lose_digits_is_refused() {
        assert!(to_bytes("1.234", 9, 2).unwrap_err().contains("after the point"));
        assert_eq!(to_bytes("1.2300", 9, 2), Ok(vec![123]));
        assert!(to_bytes("12345", 4, 0).unwrap_err().contains("more than 4 digits"));
        for text in ["", "-", "1e3", ".5", "1.2.3", "0x1", "NaN"] {
            assert!(to_bytes(text, 9, 2).is_err(), "{text}");
        }
        assert!(to_text(&[1; 65], 0).is_err());
    }
}
