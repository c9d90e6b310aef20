//! HTTP/1.1 as far as a proxy needs it: where a request or an answer ends, and which bytes a range names.

use std::ops::Range;

const HEADERS_MAX: usize = 64;
const OBJECT_LINES: [&str; 8] = [
    "etag",
    "last-modified",
    "x-goog-generation",
    "x-goog-metageneration",
    "x-goog-storage-class",
    "x-ms-blob-type",
    "x-ms-creation-time",
    "x-ms-version",
];

/// The head of a request, and how long what follows it is.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    /// As the client wrote it.
    pub target: String,
    pub range: Option<String>,
    /// Only the server can say whether what it asks for is there.
    pub conditional: bool,
    pub expects_continue: bool,
    pub closes: bool,
    pub head_bytes: usize,
    pub body: Length,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    Known(usize),
    Chunked,
    UntilClose,
}

/// Parse a head; None while it is not complete.
pub fn request(input: &[u8]) -> Result<Option<Request>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = parsed.parse(input).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let target = parsed.path.unwrap_or("").to_owned();
    let mut request = Request {
        method: parsed.method.unwrap_or("").to_owned(),
        conditional: false,
        target,
        range: None,
        expects_continue: false,
        closes: false,
        head_bytes,
        body: Length::Known(0),
    };
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("");
        let name = header.name;
        if name.eq_ignore_ascii_case("range") || name.eq_ignore_ascii_case("x-ms-range") {
            request.range = Some(value.to_owned());
        } else if name.len() > 3 && name[..3].eq_ignore_ascii_case("if-") {
            request.conditional = true;
        } else if name.eq_ignore_ascii_case("expect") {
            request.expects_continue = value.eq_ignore_ascii_case("100-continue");
        } else if name.eq_ignore_ascii_case("connection") {
            request.closes = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("content-length") {
            request.body = Length::Known(value.parse().map_err(|_| format!("Content-Length: {value}"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            request.body = Length::Chunked;
        }
    }
    Ok(Some(request))
}

/// The head of an answer.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head_bytes: usize,
    pub body: Length,
    pub closes: bool,
    /// Lines that every answer about the object has: what tells its content and its kind from others.
    pub object_lines: String,
}

/// Parse the head of the answer to `method`; None while it is not complete.
pub fn response(input: &[u8], method: &str) -> Result<Option<Response>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = parsed.parse(input).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let status = parsed.code.unwrap_or(0);
    let mut response =
        Response { status, head_bytes, body: Length::UntilClose, closes: false, object_lines: String::new() };
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("");
        if header.name.eq_ignore_ascii_case("content-length") {
            response.body = Length::Known(value.parse().map_err(|_| format!("Content-Length: {value}"))?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            response.body = Length::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            response.closes = value.eq_ignore_ascii_case("close");
        } else if OBJECT_LINES.iter().any(|name| header.name.eq_ignore_ascii_case(name)) {
            response.object_lines += &format!("{}: {value}\r\n", header.name);
        }
    }
    if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        response.body = Length::Known(0);
    }
    response.closes |= response.body == Length::UntilClose;
    Ok(Some(response))
}

/// Finds the end of a chunked body that arrives in pieces.
#[derive(Debug, Default)]
pub struct Chunks {
    at: usize,
    ended: bool,
}

impl Chunks {
    /// How long the body is, trailers and framing included; `body` is all of it that has come.
    pub fn end(&mut self, body: &[u8]) -> Result<Option<usize>, String> {
        loop {
            let Some(line) = body.get(self.at..).and_then(|rest| rest.windows(2).position(|two| two == b"\r\n")) else {
                return Ok(None);
            };
            let text = &body[self.at..self.at + line];
            let next = self.at + line + 2;
            if self.ended {
                self.at = next;
                if text.is_empty() {
                    return Ok(Some(next)); // the empty line behind the trailers
                }
                continue;
            }
            let digits = text.split(|byte| *byte == b';').next().unwrap_or(b"");
            let size = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok())
                .ok_or("a chunk without a size")?;
            self.ended = size == 0;
            self.at = next + if size == 0 { 0 } else { size.saturating_add(2) };
        }
    }
}

/// What a Range header asks of an object.
#[derive(Debug, PartialEq)]
pub enum Asked {
    All,
    Part(Range<u64>),
    Outside,
    /// Several ranges, which only the server answers.
    Several,
}

/// The bytes that `header` names of an object; what is not a range at all is passed over, as RFC 9110 says.
pub fn asked(header: Option<&str>, size_bytes: u64) -> Asked {
    let Some(ranges) = header.and_then(|value| value.trim().strip_prefix("bytes=")) else {
        return Asked::All;
    };
    if ranges.contains(',') {
        return Asked::Several;
    }
    let Some((first, last)) = ranges.split_once('-') else {
        return Asked::All;
    };
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        digits => digits.parse::<u64>().ok().map(Some),
    };
    match (number(first), number(last)) {
        (Some(Some(first)), Some(Some(last))) if last < first => Asked::All,
        (Some(Some(first)), Some(_)) if first >= size_bytes => Asked::Outside,
        (Some(Some(first)), Some(last)) => {
            Asked::Part(first..last.map_or(size_bytes, |last| last.saturating_add(1)).min(size_bytes))
        }
        (Some(None), Some(Some(length))) if length == 0 || size_bytes == 0 => Asked::Outside,
        (Some(None), Some(Some(length))) => Asked::Part(size_bytes.saturating_sub(length)..size_bytes),
        _ => Asked::All,
    }
}

/// A path or a part of a query, `%xx` undone.
pub fn decoded(text: &str) -> String {
    let path = text.as_bytes();
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let hex = path.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if path[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(path[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The keys in the body of a request that deletes many objects.
pub fn deleted_keys(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    text.split("<Key>")
        .skip(1)
        .filter_map(|rest| rest.split_once("</Key>"))
        .map(|(key, _)| {
            let plain = key.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
            plain.replace("&amp;", "&")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (header, wanted) in [
            (None, Asked::All),
            (Some("bytes=0-0"), Asked::Part(0..1)),
            (Some("bytes=10-19"), Asked::Part(10..20)),
            (Some("bytes=90-200"), Asked::Part(90..100)),
            (Some("bytes=90-"), Asked::Part(90..100)),
            (Some("bytes=-10"), Asked::Part(90..100)),
            (Some("bytes=-200"), Asked::Part(0..100)),
            (Some("bytes=100-"), Asked::Outside),
            (Some("bytes=-0"), Asked::Outside),
            (Some("bytes=5-4"), Asked::All),
            (Some("bytes=x-4"), Asked::All),
            (Some("bytes=4-x"), Asked::All),
            (Some("rows=0-1"), Asked::All),
            (Some("bytes=0-1,5-6"), Asked::Several),
        ] {
            assert_eq!(asked(header, 100), wanted, "{header:?}");
        }
        assert_eq!(asked(Some("bytes=-5"), 0), Asked::Outside);
    }

    #[test]
    fn chunks_end_where_they_end_however_they_arrive() {
        let body = b"4;sign=1\r\nabcd\r\n10\r\n0123456789abcdef\r\n0\r\nx-trailer: 1\r\n\r\nnext";
        let end = body.len() - 4;
        let mut chunks = Chunks::default();
        for length in 0..end {
            assert_eq!(chunks.end(&body[..length]).unwrap(), None, "{length}");
        }
        assert_eq!(chunks.end(body).unwrap(), Some(end));
        assert!(Chunks::default().end(b"zz\r\n").is_err());
    }

    #[test]
    fn heads_tell_what_a_proxy_must_know() {
        let text =
            b"PUT /b/a%20b.lance HTTP/1.1\r\nIf-Match: e\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc";
        let found = request(text).unwrap().unwrap();
        assert_eq!((found.body, found.expects_continue, found.conditional), (Length::Known(3), true, true));
        assert_eq!(decoded(&found.target), "/b/a b.lance");
        assert!(request(&text[..20]).unwrap().is_none());
        assert!(request(b"\x00\x01\r\n\r\n").is_err());
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\nETag: \"e\"\r\n\r\n";
        assert_eq!(response(text, "HEAD").unwrap().unwrap().body, Length::Known(0));
        let found = response(text, "GET").unwrap().unwrap();
        assert_eq!((found.body, found.closes), (Length::Known(9), true));
        assert_eq!(found.object_lines, "ETag: \"e\"\r\n");
        assert!(response(b"HTTP/1.1 200 OK\r\n\r\n", "GET").unwrap().unwrap().closes);
    }

    #[test]
    fn keys_of_a_deletion_are_found() {
        let body = b"<Delete><Object><Key>a/b&amp;c.lance</Key></Object><Object><Key>d</Key></Object></Delete>";
        assert_eq!(deleted_keys(body), ["a/b&c.lance", "d"]);
    }
}
