//! Bodies of type `multipart/form-data` (RFC 7578), read as a stream: memory holds one frame of the body and the
//! beginning of the next part. The crate multer, which axum uses, reads all frames that have arrived before it returns
//! the first bytes: a client that sends faster than the object store takes would fill the memory.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::Error;
use crate::error::{Code, Problem};
use crate::files::relays::Relay;
use crate::server::json::{BODY_IDLE, drain};
use crate::state::App;

/// Bytes of a form besides its files.
pub(super) const FORM_MAX: u64 = 256 << 10;

/// Content type of a file that has none.
pub(super) const OCTETS: &str = "application/octet-stream";

/// Maximum size of the headers of a part, and of a boundary (RFC 2046), bytes.
const HEAD_MAX: usize = 8 << 10;
const BOUNDARY_MAX: usize = 70;

/// Takes the permit to receive a form of a tenant.
pub(super) fn permit(app: &App, tenant: &str) -> Result<Relay, Error> {
    let message = "too many uploads go through this replica; repeat the request";
    Ok(app.relays.take(tenant).ok_or_else(|| Problem::new(Code::RateLimited, message))?)
}

/// The size of a form, which a client must announce.
pub(super) fn length(headers: &HeaderMap) -> Result<u64, Error> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    Ok(length.ok_or_else(|| Problem::field("Content-Length", "is required: the size of the form, bytes"))?)
}

/// Reads what is left of a form, also of one that was refused: a client that is sending the body may read the response
/// only after it. One that waits for `100 Continue` and was not asked for the body sends none, and reading it would ask.
pub(super) async fn finish(body: Body, headers: &HeaderMap, is_asked_for: bool) {
    if is_asked_for || !headers.contains_key(EXPECT) {
        drain(body).await;
    }
}

/// The headers of a part that matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Name of the field.
    pub(super) name: String,
    /// Name of the file; `None` for a text.
    pub(super) file_name: Option<String>,
    pub(super) content_type: Option<String>,
}

/// The parts of a body, one after the other.
pub(super) struct Parts<'a> {
    body: &'a mut Body,
    deadline: Instant,
    splitter: Splitter,
}

impl<'a> Parts<'a> {
    /// Reads the headers of the request. The whole body must have arrived by `deadline`.
    pub(super) fn new(headers: &HeaderMap, body: &'a mut Body, deadline: Instant) -> Result<Self, Error> {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let boundary = boundary(kind).ok_or_else(|| {
            let message = "the body must be multipart/form-data with a boundary of 1 to 70 characters";
            Error::from(Problem::field("Content-Type", message))
        })?;
        Ok(Self { body, deadline, splitter: Splitter::new(&boundary) })
    }

    /// The next part; the rest of the one before is skipped. `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Head>, Error> {
        while self.chunk().await?.is_some() {}
        loop {
            match self.splitter.head()? {
                Step::Done(head) => return Ok(head),
                Step::More => self.fill().await?,
            }
        }
    }

    /// The next bytes of the part. `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.splitter.chunk() {
                Step::Done(chunk) => return Ok(chunk),
                Step::More => self.fill().await?,
            }
        }
    }

    /// The whole part, which is a text of at most `most` bytes.
    pub(super) async fn text(&mut self, name: &str, most: usize) -> Result<String, Error> {
        let mut text = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if text.len() + chunk.len() > most {
                return Err(Error::invalid(name, format!("{name} must have at most {most} bytes")));
            }
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).map_err(|_| Error::invalid(name, format!("{name} must be UTF-8 text")))
    }

    /// Reads one frame of the body.
    async fn fill(&mut self) -> Result<(), Error> {
        let slow = |_| Problem::new(Code::BodyTimeout, "the body stopped arriving; send it without pauses");
        let frame = timeout_at(self.deadline, timeout(BODY_IDLE, self.body.frame()));
        let frame = frame.await.and_then(|frame| frame).map_err(slow)?;
        let cut = || Problem::new(Code::InvalidRequest, "the body ended early; upload the file again");
        let frame = frame.ok_or_else(cut)?.map_err(|_| cut())?;
        if let Ok(data) = frame.into_data() {
            self.splitter.pending.extend_from_slice(&data);
        }
        Ok(())
    }
}

enum Step<T> {
    Done(T),
    /// More of the body is needed.
    More,
}

/// Splits the bytes of a body into parts.
struct Splitter {
    /// What ends a part: a line break and the boundary.
    delimiter: Vec<u8>,
    pending: BytesMut,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    /// Before the first delimiter, or within a part.
    Part,
    /// After a delimiter.
    Between,
    /// After the last delimiter.
    End,
}

impl Splitter {
    fn new(boundary: &str) -> Self {
        // The first delimiter has no line break before it, so that one is added: what precedes it is an empty part.
        let (delimiter, pending) = (format!("\r\n--{boundary}").into_bytes(), BytesMut::from(&b"\r\n"[..]));
        Self { delimiter, pending, state: State::Part }
    }

    fn chunk(&mut self) -> Step<Option<Bytes>> {
        if self.state != State::Part {
            return Step::Done(None);
        }
        let mut from = 0;
        while let Some(at) = self.pending[from..].iter().position(|byte| *byte == b'\r').map(|at| from + at) {
            let rest = &self.pending[at..];
            let length = rest.len().min(self.delimiter.len());
            if rest[..length] != self.delimiter[..length] {
                from = at + 1;
            } else if at > 0 {
                return Step::Done(Some(self.pending.split_to(at).freeze()));
            } else if length < self.delimiter.len() {
                return Step::More;
            } else {
                let _ = self.pending.split_to(length);
                self.state = State::Between;
                return Step::Done(None);
            }
        }
        if self.pending.is_empty() { Step::More } else { Step::Done(Some(self.pending.split().freeze())) }
    }

    fn head(&mut self) -> Result<Step<Option<Head>>, Error> {
        if self.state == State::End {
            return Ok(Step::Done(None));
        }
        if self.pending.starts_with(b"--") {
            self.state = State::End;
            return Ok(Step::Done(None));
        }
        let wrong =
            |what: &str| Err(Problem::new(Code::InvalidRequest, format!("the form cannot be read: {what}")).into());
        let Some(end) = self.pending.windows(4).position(|window| window == b"\r\n\r\n") else {
            if self.pending.len() > HEAD_MAX {
                return wrong("the headers of a part are too long");
            }
            return Ok(Step::More);
        };
        let text = self.pending.split_to(end + 4);
        let Some(head) = std::str::from_utf8(&text).ok().filter(|_| end <= HEAD_MAX).and_then(head) else {
            return wrong("a part has no Content-Disposition with a name");
        };
        self.state = State::Part;
        Ok(Step::Done(Some(head)))
    }
}

/// The boundary in a content type.
fn boundary(kind: &str) -> Option<String> {
    let (kind, rest) = kind.split_once(';')?;
    let boundary = kind.trim().eq_ignore_ascii_case("multipart/form-data").then(|| parameter(rest, "boundary"))??;
    matches!(boundary.len(), 1..=BOUNDARY_MAX).then_some(boundary)
}

/// The headers of a part.
fn head(text: &str) -> Option<Head> {
    let mut head = Head::default();
    for line in text.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.trim().eq_ignore_ascii_case("content-type") {
            head.content_type = Some(value.trim().to_owned());
        } else if name.trim().eq_ignore_ascii_case("content-disposition") {
            let (_, parameters) = value.split_once(';')?;
            head.name = decoded(&parameter(parameters, "name")?);
            head.file_name = parameter(parameters, "filename").map(|name| decoded(&name));
        }
    }
    (!head.name.is_empty()).then_some(head)
}

/// Browsers and Python percent-encode what cannot be in quotes.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Into::into)
}

/// A parameter of a header, quoted or not.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([';', ' ', '\t']);
        let value;
        (value, rest) = if let Some(quoted) = after.trim_start().strip_prefix('"') {
            unquoted(quoted)?
        } else {
            let (value, rest) = after.split_once(';').unwrap_or((after, ""));
            (value.trim().to_owned(), rest)
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
    }
    None
}

/// The text up to the closing quote, and what follows it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return Some((value, &text[at + 1..])),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(frames: Vec<&'static [u8]>) -> Body {
        let frames = frames.into_iter().map(|frame| Ok::<_, std::io::Error>(Bytes::from_static(frame)));
        Body::from_stream(futures::stream::iter(frames.collect::<Vec<_>>()))
    }

    fn headers(kind: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())])
    }

    async fn read(mut body: Body) -> Result<Vec<(Head, Vec<u8>)>, Error> {
        let headers = headers("multipart/form-data; boundary=XX");
        let mut parts = Parts::new(&headers, &mut body, Instant::now() + BODY_IDLE)?;
        let mut found = Vec::new();
        while let Some(head) = parts.next().await? {
            let mut bytes = Vec::new();
            while let Some(chunk) = parts.chunk().await? {
                bytes.extend_from_slice(&chunk);
            }
            found.push((head, bytes));
        }
        Ok(found)
    }

    const FORM: &[u8] = b"--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--XX\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a%22 b.jsonl\"\r\n\
        Content-Type: application/jsonl\r\n\r\n{}\r\n\r\n--X\r\n\r\n--XX--\r\n";

    #[tokio::test]
    async fn parts_are_the_same_however_the_frames_fall() {
        let text = Head { name: "purpose".to_owned(), ..Head::default() };
        let file = Head {
            name: "file".to_owned(),
            file_name: Some("a\" b.jsonl".to_owned()),
            content_type: Some("application/jsonl".to_owned()),
        };
        let expected = vec![(text, b"batch".to_vec()), (file, b"{}\r\n\r\n--X\r\n".to_vec())];
        for step in 1..FORM.len() {
            assert_eq!(read(form(FORM.chunks(step).collect())).await.unwrap(), expected, "{step}");
        }
    }

    #[tokio::test]
    async fn a_form_that_ends_early_or_has_no_names_is_refused() {
        for length in 0..FORM.len() - 4 {
            assert!(read(form(vec![&FORM[..length]])).await.is_err(), "{length}");
        }
        let unnamed = b"--XX\r\nContent-Disposition: form-data\r\n\r\nx\r\n--XX--\r\n";
        assert!(read(form(vec![unnamed])).await.is_err());
        let endless: &[u8] = Box::leak(format!("--XX\r\nA: {}", "x".repeat(HEAD_MAX + 1)).into_bytes().into());
        assert!(read(form(vec![endless])).await.is_err());
    }

    #[test]
    fn a_boundary_may_be_quoted() {
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\"; x=1").as_deref(), Some("a b"));
        assert_eq!(boundary("Multipart/Form-Data; charset=x; Boundary=ab").as_deref(), Some("ab"));
        for wrong in ["multipart/form-data", "application/json; boundary=a", "multipart/form-data; boundary="] {
            assert_eq!(boundary(wrong), None, "{wrong}");
        }
    }
}
