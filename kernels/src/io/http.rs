//! Ranged GETs of HTTP/1.1: the head of a request, signed, and the head of the usual answer.
//!
//! Unusual answers are left to a general parser; this module only recognises the usual one.

use crate::buffer::Input;
use hmac::{Hmac, KeyInit, Mac};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;
use sha2::{Digest, Sha256};

/// Maximum number of headers in a usual answer; S3 sends a dozen.
const HEADERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 64 << 10;
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// `part_answer` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (memory, num_bytes, start, end, /))]
pub fn part_answer(
    memory: &Bound<'_, PyAny>,
    num_bytes: usize,
    start: u64,
    end: u64,
) -> PyResult<Option<(usize, u64, Option<String>)>> {
    let memory = Input::new(memory)?;
    let Some(here) = memory.bytes().get(..num_bytes) else {
        return Err(PyValueError::new_err(format!("{num_bytes} bytes are more than there are")));
    };
    Ok(plain_part(here, start, end))
}

pub fn plain_part(here: &[u8], start: u64, end: u64) -> Option<(usize, u64, Option<String>)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head_bytes)) = answer.parse(here) else {
        return None;
    };
    let head = &here[..head_bytes];
    if answer.version != Some(1) || answer.code != Some(206) || head_bytes > HEAD_BYTES_MAX || !is_strict(head) {
        return None;
    }
    let (mut length, mut size, mut etag) = (None, None, None);
    for header in answer.headers.iter() {
        let name = header.name;
        if name.eq_ignore_ascii_case("content-length") {
            if length.replace(number(header.value)?).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("content-range") {
            if size.replace(size_of(header.value, start, end)?).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("etag") {
            let text = std::str::from_utf8(header.value).ok().filter(|text| text.is_ascii())?;
            if etag.replace(text.to_owned()).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("connection") {
            if !header.value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") || name.eq_ignore_ascii_case("upgrade") {
            return None;
        }
    }
    let size = size.filter(|&size| size >= end)?;
    length.filter(|&length| start < end && length == end - start)?;
    Some((head_bytes, size, etag))
}

/// Whether lines end with CR LF, and the head with two of them.
fn is_strict(head: &[u8]) -> bool {
    head.ends_with(b"\r\n\r\n") && head.windows(2).all(|two| two[1] != b'\n' || two[0] == b'\r')
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

/// The size of the object, if the value announces these bytes of it.
fn size_of(value: &[u8], start: u64, end: u64) -> Option<u64> {
    let part = value.strip_prefix(b"bytes ")?;
    let slash = part.iter().position(|&byte| byte == b'/')?;
    let dash = part[..slash].iter().position(|&byte| byte == b'-')?;
    let (first, last) = (number(&part[..dash])?, number(&part[dash + 1..slash])?);
    if first != start || last.checked_add(1) != Some(end) {
        return None;
    }
    number(&part[slash + 1..])
}

enum Value {
    Fixed(String),
    Range,
    Time,
}

/// `RangeSigner` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct RangeSigner {
    /// In the order of signing: by name.
    headers: Vec<(String, Value)>,
    names: String,
    host: String,
    access_key: String,
    region: String,
    tail: String,
}

#[pymethods]
impl RangeSigner {
    #[new]
    #[pyo3(signature = (host, access_key, region, headers, tail, /))]
    fn new(host: String, access_key: String, region: String, headers: Vec<(String, String)>, tail: String) -> Self {
        let mut signed: Vec<(String, Value)> = vec![
            ("range".into(), Value::Range),
            ("x-amz-content-sha256".into(), Value::Fixed(EMPTY_SHA256.into())),
            ("x-amz-date".into(), Value::Time),
            ("host".into(), Value::Fixed(host.clone())),
        ];
        signed.extend(headers.into_iter().map(|(name, value)| (name, Value::Fixed(value))));
        signed.sort_by(|one, other| one.0.cmp(&other.0));
        let names = signed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
        RangeSigner { headers: signed, names, host, access_key, region, tail }
    }

    #[pyo3(signature = (ranges, amz_time, day_key, /))]
    fn heads<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(PyBackedStr, u64, u64)>,
        amz_time: &str,
        day_key: &[u8],
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let head = |(path, start, end): &(PyBackedStr, u64, u64)| self.head(path, *start, *end, amz_time, day_key);
        ranges.iter().map(head).map(|head| head.map(|head| PyBytes::new(py, head.as_bytes()))).collect()
    }
}

impl RangeSigner {
    fn head(&self, path: &str, start: u64, end: u64, amz_time: &str, day_key: &[u8]) -> PyResult<String> {
        let Some(day) = amz_time.get(..8).filter(|_| start < end) else {
            return Err(PyValueError::new_err(format!("no range {start}-{end} is read at {amz_time:?}")));
        };
        let range = format!("bytes={start}-{}", end - 1);
        let value_of = |value: &'_ Value| match value {
            Value::Fixed(text) => text.clone(),
            Value::Range => range.clone(),
            Value::Time => amz_time.to_owned(),
        };
        let (mut canonical, mut head) = (String::with_capacity(512), String::with_capacity(768));
        canonical.push_str(&format!("GET\n{path}\n\n"));
        head.push_str(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\n", self.host));
        for (name, value) in &self.headers {
            let value = value_of(value);
            canonical.push_str(&format!("{name}:{value}\n"));
            if name != "host" {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        canonical.push_str(&format!("\n{}\n{EMPTY_SHA256}", self.names));
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let digest = hex(&Sha256::digest(canonical.as_bytes()));
        let mut signature = Hmac::<Sha256>::new_from_slice(day_key)
            .map_err(|_| PyValueError::new_err("a key of no length signs nothing"))?;
        signature.update(format!("AWS4-HMAC-SHA256\n{amz_time}\n{scope}\n{digest}").as_bytes());
        let signature = hex(&signature.finalize().into_bytes());
        let (access_key, names) = (&self.access_key, &self.names);
        head.push_str(&format!("authorization: AWS4-HMAC-SHA256 Credential={access_key}/{scope}, "));
        head.push_str(&format!("SignedHeaders={names}, Signature={signature}\r\n{}", self.tail));
        Ok(head)
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
