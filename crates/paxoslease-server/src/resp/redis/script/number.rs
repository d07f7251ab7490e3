//! Numbers as Lua 5.1 reads and writes them.

/// Digits that Lua writes of a number (`%.14g`).
const DIGITS_SHOWN: usize = 14;
/// Digits that Redis passes to a command (`%.17g`).
const DIGITS_PASSED: usize = 17;

/// A number without blanks around it: decimal with an optional exponent, or hexadecimal. Unlike
/// C's `strtod` it knows no infinity and no NaN.
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let size = if let Some(hexadecimal) = hexadecimal {
        if !hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        u64::from_str_radix(hexadecimal, 16).ok()? as f64
    } else {
        let known = |byte: u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let starts = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        if !starts || !digits.bytes().all(known) {
            return None;
        }
        digits.parse().ok()?
    };
    Some(if negative { -size } else { size })
}

/// What `tonumber` makes of a text: blanks around the number do not matter.
pub(super) fn from_text(text: &[u8]) -> Option<f64> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let from = text.iter().position(|byte| !is_blank(byte))?;
    let to = text.iter().rposition(|byte| !is_blank(byte))?;
    parse(&text[from..=to])
}

/// As `tostring` and `..` write it.
pub(super) fn show(number: f64) -> String {
    general(number, DIGITS_SHOWN)
}

/// As Redis passes it to a command: a whole number keeps all its digits.
pub(super) fn pass(number: f64) -> String {
    let whole = truncate(number);
    let is_whole = whole as f64 == number && number.abs() < 1e18;
    if is_whole { whole.to_string() } else { general(number, DIGITS_PASSED) }
}

/// The integer of a reply.
pub(super) fn truncate(number: f64) -> i64 {
    number as i64
}

/// C's `%.{digits}g`.
fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("`e` was asked for");
    let exponent: i32 = exponent.parse().expect("Rust wrote this exponent");
    let places = i32::try_from(digits).expect("few digits") - 1 - exponent;
    if exponent >= -4 && places >= 0 {
        let places = usize::try_from(places).expect("not negative");
        return without_zeros(&format!("{number:.places$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::{from_text, pass, show};

    #[test]
    fn numbers_are_written_as_by_lua() {
        for (number, shown, passed) in [
            (0.0, "0", "0"),
            (-1.0, "-1", "-1"),
            (1.5, "1.5", "1.5"),
            (30000.0, "30000", "30000"),
            (0.1, "0.1", "0.10000000000000001"),
            (1e14, "1e+14", "100000000000000"),
            (1_763_359_200_123_456.0, "1.7633592001235e+15", "1763359200123456"),
            (1e-5, "1e-05", "1.0000000000000001e-05"),
            (1e300, "1e+300", "1.0000000000000001e+300"),
            (f64::INFINITY, "inf", "inf"),
        ] {
            assert_eq!(show(number), shown);
            assert_eq!(pass(number), passed);
        }
    }

    #[test]
    fn only_a_whole_text_is_a_number() {
        assert_eq!(from_text(b" 10 "), Some(10.0));
        assert_eq!(from_text(b"0x1F"), Some(31.0));
        assert_eq!(from_text(b"-2.5e1"), Some(-25.0));
        for text in ["", " ", "1 2", "ten", "1x", "nan", "inf", "0x", "1e", "--1", "+-1", "."] {
            assert_eq!(from_text(text.as_bytes()), None, "{text}");
        }
    }
}
