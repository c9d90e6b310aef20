//! What differs between the protocols of S3, Google Cloud Storage and Azure: names, plain reads, errors.

use crate::http::{self, Request};

const NAME_SEARCHED_BYTES: usize = 4096; // of an upload: its first part describes the object

/// Which store is behind the proxy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dialect {
    S3,
    Gcs,
    Azure,
}

impl Dialect {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "s3" => Self::S3,
            "gcs" => Self::Gcs,
            "azure" => Self::Azure,
            _ => return None,
        })
    }

    /// What names the object of a target in the log and the cache: a slash, the bucket or the account with the
    /// container, a slash, and its key. Google's JSON API says `/storage/v1/b/BUCKET/o/KEY`, with the key encoded.
    pub fn key_of(self, target: &str) -> String {
        let path = target.split('?').next().unwrap_or("");
        let named = match self {
            Self::Gcs => path.split_once("/storage/v1/b/").map(|(_, named)| named),
            _ => None,
        };
        // What is copied is named behind where it comes from.
        let named = named.map(|named| named.rsplit_once("/rewriteTo/b/").map_or(named, |(_, written)| written));
        match named.map(|named| named.split_once("/o/").unwrap_or((named, ""))) {
            Some((bucket, key)) => http::decoded(&format!("/{bucket}/{key}")),
            None => http::decoded(path),
        }
    }

    /// Whether a GET asks for an object, or one range of it, and nothing else that only the server knows.
    pub fn is_plain_read(self, request: &Request) -> bool {
        if request.method != "GET" || request.conditional {
            return false;
        }
        let query = request.target.split_once('?').map(|(_, query)| query);
        match self {
            Self::S3 => query.is_none(),
            Self::Gcs => query.is_none() || query == Some("alt=media"),
            Self::Azure => {
                // Azure knows no last bytes. A shared access signature is a query with `sig`, and nothing is asked by it.
                let is_suffix = request.range.as_deref().is_some_and(|range| range.starts_with("bytes=-"));
                let names = query.unwrap_or("").split('&').map(|pair| pair.split('=').next().unwrap_or(""));
                let asks = names.clone().any(|name| matches!(name, "comp" | "restype" | "snapshot" | "versionid"));
                !is_suffix && !asks && (query.is_none() || names.clone().any(|name| name == "sig"))
            }
        }
    }

    /// The objects that a request changes, as the cache names them.
    pub fn changed_keys(self, request: &Request, key: &str, bytes: &[u8]) -> Vec<String> {
        if request.method == "GET" || request.method == "HEAD" {
            return Vec::new();
        }
        let body = &bytes[request.head_bytes..];
        let mut keys = vec![key.to_owned()];
        if self == Self::S3 && (request.target.ends_with("?delete=") || request.target.ends_with("?delete")) {
            let bucket = key.trim_end_matches('/');
            keys.extend(http::deleted_keys(body).into_iter().map(|name| format!("{bucket}/{name}")));
        }
        if self == Self::Gcs && request.target.contains("/upload/storage/v1/b/") {
            let query = request.target.split_once('?').map_or("", |(_, query)| query);
            let in_query = query.split('&').find_map(|pair| pair.strip_prefix("name=")).map(http::decoded);
            let bucket = key.trim_end_matches('/').trim_end_matches("/o");
            keys.extend(in_query.or_else(|| name_in(body)).map(|name| format!("{bucket}/{name}")));
        }
        keys
    }

    /// A request as the server is to see it: fake-gcs-server finds buckets by its own host alone. Nothing is
    /// signed there; the others sign the host that the client names.
    pub fn passed_on(self, request: Vec<u8>, head_bytes: usize, server: &str) -> Vec<u8> {
        if self != Self::Gcs {
            return request;
        }
        let head = String::from_utf8_lossy(&request[..head_bytes]);
        let line = head.split("\r\n").find(|line| line.len() > 5 && line[..5].eq_ignore_ascii_case("host:"));
        match line {
            Some(line) => {
                let renamed = head.replacen(line, &format!("Host: {server}"), 1).into_bytes();
                [&renamed, &request[head_bytes..]].concat()
            }
            None => request,
        }
    }

    /// Type and text of an error, and lines of its head.
    pub fn error(self, status: u16, code: &str, reason: &str, key: &str) -> (String, String) {
        let shown = key.replace('&', "&amp;").replace('<', "&lt;");
        let xml = |body: String| format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>{body}</Error>");
        let typed = |name: &str| format!("Content-Type: {name}\r\n");
        match self {
            Self::S3 => (
                typed("application/xml"),
                xml(format!("<Code>{code}</Code><Message>{reason}</Message><Resource>{shown}</Resource>")),
            ),
            Self::Gcs => (
                typed("application/json"),
                format!("{{\"error\": {{\"code\": {status}, \"message\": \"{reason}\", \"errors\": []}}}}"),
            ),
            Self::Azure => {
                let code = if code == "SlowDown" { "ServerBusy" } else { code };
                let lines = format!("{}x-ms-error-code: {code}\r\n", typed("application/xml"));
                (lines, xml(format!("<Code>{code}</Code><Message>{reason}</Message>")))
            }
        }
    }
}

/// The name of the object that Google's uploads in several parts describe before its bytes.
fn name_in(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&body[..body.len().min(NAME_SEARCHED_BYTES)]);
    let (_, rest) = text.split_once("\"name\":")?;
    let (name, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(lines: &str) -> Request {
        http::request(format!("GET {lines}\r\n\r\n").as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn objects_have_one_name_however_they_are_asked_for() {
        for target in ["/b/o/a%20b.lance", "/b/o/a b.lance"] {
            assert_eq!(Dialect::S3.key_of(target), "/b/o/a b.lance");
            assert_eq!(Dialect::Azure.key_of(target), "/b/o/a b.lance");
        }
        for target in [
            "/bucket/t/data/a%20b.lance",
            "/storage/v1/b/bucket/o/t%2Fdata%2Fa%20b.lance?alt=media",
            "/download/storage/v1/b/bucket/o/t%2Fdata%2Fa%20b.lance?alt=media",
            "/storage/v1/b/bucket/o/from/rewriteTo/b/bucket/o/t%2Fdata%2Fa%20b.lance",
        ] {
            assert_eq!(Dialect::Gcs.key_of(target), "/bucket/t/data/a b.lance", "{target}");
        }
    }

    #[test]
    fn plain_reads_are_told_from_questions() {
        let range = " HTTP/1.1\r\nRange: bytes=1-2";
        for (dialect, target, plain) in [
            (Dialect::S3, "/b/k", true),
            (Dialect::S3, "/b/k?versionId=1", false),
            (Dialect::Gcs, "/storage/v1/b/b/o/k?alt=media", true),
            (Dialect::Gcs, "/storage/v1/b/b/o/k?alt=media&generation=1", false),
            (Dialect::Gcs, "/storage/v1/b/b/o/k?fields=size", false),
            (Dialect::Gcs, "/b/k", true),
            (Dialect::Azure, "/account/c/k", true),
            (Dialect::Azure, "/account/c/k?sv=2023&sig=a%2Bb", true),
            (Dialect::Azure, "/account/c/k?comp=metadata&sig=a", false),
            (Dialect::Azure, "/account/c/k?snapshot=1", false),
        ] {
            assert_eq!(dialect.is_plain_read(&get(&format!("{target}{range}"))), plain, "{dialect:?} {target}");
        }
        let suffix = get("/a/c/k HTTP/1.1\r\nx-ms-range: bytes=-5");
        assert!(Dialect::S3.is_plain_read(&suffix) && !Dialect::Azure.is_plain_read(&suffix));
        assert!(!Dialect::S3.is_plain_read(&get("/b/k HTTP/1.1\r\nIf-Match: \"e\"")));
    }

    #[test]
    fn uploads_change_what_they_name() {
        for (target, body) in [
            ("/upload/storage/v1/b/b/o?uploadType=media&name=t%2Fk", ""),
            ("/upload/storage/v1/b/b/o?uploadType=multipart", "--x\r\n\r\n{\"name\": \"t/k\"}\r\n--x"),
        ] {
            let text = format!("POST {target} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let request = http::request(text.as_bytes()).unwrap().unwrap();
            let changed = Dialect::Gcs.changed_keys(&request, &Dialect::Gcs.key_of(target), text.as_bytes());
            assert!(changed.contains(&"/b/t/k".to_owned()), "{changed:?}");
        }
    }

    #[test]
    fn only_one_server_is_told_its_own_name() {
        let text = b"GET /b/k HTTP/1.1\r\nhost: 127.0.0.1:1\r\na: b\r\n\r\nhost: body";
        let head_bytes = text.len() - 10;
        assert_eq!(Dialect::S3.passed_on(text.to_vec(), head_bytes, "s:2"), text);
        let renamed = b"GET /b/k HTTP/1.1\r\nHost: s:2\r\na: b\r\n\r\nhost: body";
        assert_eq!(Dialect::Gcs.passed_on(text.to_vec(), head_bytes, "s:2"), renamed);
    }
}
