//! The body of a create with rows: `multipart/form-data`.

/// Returns the parts `job` and `content` of a body.
pub(super) fn parts<'a>(content_type: &str, body: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (_, boundary) = content_type.split_once("boundary=")?;
    let boundary = boundary.split(';').next()?.trim().trim_matches('"');
    let mark = format!("--{boundary}");
    let named = |name: &str| {
        pieces(body, mark.as_bytes()).find_map(|piece| {
            let (head, content) = split(piece)?;
            let head = String::from_utf8_lossy(head).to_ascii_lowercase();
            head.contains(&format!("name=\"{name}\"")).then_some(content)
        })
    };
    Some((named("job")?, named("content")?))
}

fn pieces<'a, 'm>(body: &'a [u8], mark: &'m [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'm> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let start = find(rest, mark)? + mark.len();
        rest = &rest[start..];
        let end = find(rest, mark)?;
        Some(&rest[..end])
    })
}

/// Splits headers and content, without the line break that belongs to the boundary.
fn split(piece: &[u8]) -> Option<(&[u8], &[u8])> {
    for (gap, end) in [(&b"\r\n\r\n"[..], &b"\r\n"[..]), (b"\n\n", b"\n")] {
        if let Some(at) = find(piece, gap) {
            let content = &piece[at + gap.len()..];
            return Some((&piece[..at], content.strip_suffix(end).unwrap_or(content)));
        }
    }
    None
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_are_found_with_either_line_break() {
        let body = "--B\nContent-Type: application/json\nContent-Disposition: form-data; \
                    name=\"job\"\n\n{}\n--B\nContent-Disposition: form-data; name=\"content\"; \
                    filename=\"content\"\n\nName\nx\n\n--B--\n";
        let kind = "multipart/form-data; boundary=\"B\"";
        let expected: (&[u8], &[u8]) = (b"{}", b"Name\nx\n");
        assert_eq!(parts(kind, body.as_bytes()), Some(expected));
        let crlf = body.replace('\n', "\r\n");
        let expected: (&[u8], &[u8]) = (b"{}", b"Name\r\nx\r\n");
        assert_eq!(parts(kind, crlf.as_bytes()), Some(expected));
        assert_eq!(parts("multipart/form-data", body.as_bytes()), None);
        assert_eq!(parts(kind, b"--B\n"), None);
    }
}
